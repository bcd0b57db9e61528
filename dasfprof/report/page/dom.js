// Elements of the page. Content of a trace becomes only text.

/** Creates an element. Children that are not elements become text. */
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

/** Creates a button that closes a panel. */
export function closeButton(onclick) {
  return make("button", { type: "button", class: "close", "aria-label": "Close", onclick }, "✕");
}

/** Creates radio buttons. `options` has the label of each value. */
export function radios(name, options, chosen, onchange) {
  return Object.entries(options).map(([value, text]) => {
    const radio = { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) };
    return make("label", {}, make("input", radio), make("span", {}, text));
  });
}

/** Creates a table. A cell is a text or an element, and the first cell of a row is its heading. */
export function tableOf(attributes, labels, rows) {
  const cell = (content, at) => (at ? make("td", {}, content) : make("th", { scope: "row" }, content));
  const head = make("tr", {}, ...labels.map((text) => make(text ? "th" : "td", text ? { scope: "col" } : {}, text)));
  return make("table", attributes, head, ...rows.map((row) => make("tr", {}, ...row.map(cell))));
}

/** Creates a list of terms with their values, without empty values. `titleOf` returns tooltips of terms. */
export function definitions(facts, titleOf = null) {
  const parts = facts.filter(([, value]) => value !== "");
  const term = (name, value) => make("dt", { title: titleOf?.(name, value) || null }, name);
  return make("dl", {}, ...parts.flatMap(([name, value]) => [term(name, value), make("dd", {}, value)]));
}

/** Creates a paragraph that explains why something is not shown. */
export function absence(text) {
  return make("p", { class: "absent" }, text);
}

/** Creates a bar that shows a fraction. */
export function meter(share) {
  const bar = make("div", {});
  bar.style.width = `${Math.min(share, 1) * 100}%`;
  return make("div", { class: "meter" }, bar);
}

/** Returns what is chosen after a click on an item, which may add it to the others or remove it. */
export function chosenAfter(chosen, item, adds) {
  const others = chosen.filter((other) => other !== item);
  const removes = chosen.includes(item) && (adds || !others.length);
  return [...(adds ? others : []), ...(removes ? [] : [item])];
}

/** Returns a function that calls `paint` once with the next frame, however often it is called. */
export function inNextFrame(paint) {
  let requested = false;
  return () => {
    if (!requested) requestAnimationFrame(() => ((requested = false), paint()));
    requested = true;
  };
}

/** Calls `read` when the page is complete, and shows an error if it fails. */
export function readPage(read) {
  onceParsed(() =>
    read().catch((error) => {
      byId("failed").textContent = `This browser could not read the page: ${error}`;
      byId("failed").hidden = false;
      throw error;
    }),
  );
}

/** Creates an element of a picture. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @returns {any} The element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** @returns {any} The first element that a selector matches. */
export function find(selector, within = document) {
  return within.querySelector(selector);
}

/** @returns {any[]} All elements that a selector matches. */
export function findAll(selector, within = document) {
  return [...within.querySelectorAll(selector)];
}

/** Calls a function when the page is complete. */
function onceParsed(act) {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", act);
  else act();
}

/** Lets the browser paint and handle events before more work. */
export function breathe() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Downloads a file that is given in parts. */
export function download(name, parts, type = "text/csv;charset=utf-8") {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
