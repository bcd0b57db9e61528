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

export function byId(id) {
  return document.getElementById(id);
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
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
