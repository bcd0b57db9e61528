// Elements of the page. Whatever a trace holds reaches it as text alone.

import { html, render } from "./vendor/lit-html.js";

/** Puts templates or texts in the place of what an element holds. */
export function fill(root, content) {
  root.replaceChildren(contentOf(content));
}

/** @returns {any} The element that a template makes. */
export function elementOf(template) {
  return contentOf(template).firstElementChild;
}

/** The title of a pane, and the button that closes it. */
export function paneHead(title, close) {
  return html`<header>
    <h3>${title}</h3>
    <button type="button" class="close" aria-label="Close" @click=${close}>✕</button>
  </header>`;
}

/** A choice of one of several options, at first the first; `chosen(value)` is called with another. */
export function choice(title, name, options, chosen) {
  const first = Object.keys(options)[0];
  const label = ([value, text]) => {
    const [isFirst, change] = [value === first, () => chosen(value)];
    const radio = html`<input type="radio" name=${name} value=${value} ?checked=${isFirst} @change=${change}>`;
    return html`<label>${radio}<span>${text}</span></label>`;
  };
  return html`<fieldset class="choice"><legend>${title}</legend>${Object.entries(options).map(label)}</fieldset>`;
}

/** A bar of a share, at most of all. */
export function meter(share) {
  return html`<div class="meter"><div .style=${`width: ${Math.min(share, 1) * 100}%`}></div></div>`;
}

function contentOf(content) {
  const fragment = document.createDocumentFragment();
  render(content, fragment);
  return fragment;
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
