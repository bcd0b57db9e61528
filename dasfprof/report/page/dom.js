// Elements of the page. Whatever a trace holds reaches it as text alone.

/** Makes an element; children that are no elements become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Makes an element of a picture. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * The element of an id.
 *
 * @returns {any} Of the kind that its name tells.
 */
export function byId(id) {
  return document.getElementById(id);
}

/** @returns {any} The first element of a selector. */
export function find(selector, within = document) {
  return within.querySelector(selector);
}

/** @returns {any[]} All elements of a selector. */
export function findAll(selector, within = document) {
  return [...within.querySelectorAll(selector)];
}

/** Does something once all of the page is there. */
export function onceParsed(act) {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", act);
  else act();
}

/** Lets the browser paint and answer before more work. */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Hands a file to the person; it comes in parts. */
export function download(name, parts, type = "text/csv;charset=utf-8") {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
