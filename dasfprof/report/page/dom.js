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

/** A button that closes what it is in. */
export function closeButton(onclick) {
  return make("button", { type: "button", class: "close", "aria-label": "Close", onclick }, "✕");
}

/** A choice of one of several values, `options` by value with their labels. */
export function radios(name, options, chosen, onchange) {
  return Object.entries(options).map(([value, text]) => {
    const radio = { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) };
    return make("label", {}, make("input", radio), make("span", {}, text));
  });
}

/** A table of rows of cells, each a text or an element; the first cell of a row is its head. */
export function tableOf(attributes, labels, rows) {
  const cell = (content, at) => (at ? make("td", {}, content) : make("th", { scope: "row" }, content));
  const head = make("tr", {}, ...labels.map((text) => make(text ? "th" : "td", text ? { scope: "col" } : {}, text)));
  return make("table", attributes, head, ...rows.map((row) => make("tr", {}, ...row.map(cell))));
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
