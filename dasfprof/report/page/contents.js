// The bar of the page's sections, which stays at the top.

import { findAll, make } from "./dom.js";

/** Margins of the part of the window that determines the current section: from the bar to the upper third. */
const [BELOW_BAR, ABOVE] = ["-60px", "-66%"];

/** Fills the bar with the sections that are shown, and marks the current one. */
export function showContents(bar) {
  const shown = findAll("main section[aria-labelledby]").filter((section) => !section.hidden);
  const tables = shown.filter((section) => section.parentElement.id === "tables");
  const entries = new Map();
  for (const section of shown.filter((other) => !tables.includes(other))) {
    const go = () => section.scrollIntoView();
    const button = make("button", { type: "button", onclick: go }, section.dataset.short ?? titleOf(section));
    entries.set(section, button);
    bar.append(make("li", {}, button));
  }
  if (tables.length) bar.append(make("li", {}, chooser(tables, entries)));
  const rootMargin = `${BELOW_BAR} 0px ${ABOVE} 0px`;
  const observer = new IntersectionObserver((changes) => mark(changes, entries), { rootMargin });
  for (const section of shown) observer.observe(section);
}

/** Returns a list of the tables, since they do not fit into the bar. */
function chooser(tables, entries) {
  const list = make("select", { "aria-label": "Tables" }, make("option", { value: "" }, "Tables …"));
  for (const [at, section] of tables.entries()) {
    list.append(make("option", { value: String(at) }, titleOf(section)));
    entries.set(section, list);
  }
  list.addEventListener("change", () => {
    tables[Number(list.value)]?.scrollIntoView();
    list.value = "";
  });
  return list;
}

function titleOf(section) {
  return section.querySelector("h2").textContent;
}

/** Marks the entry of the section that became the current one. */
function mark(changes, entries) {
  const current = changes.findLast(({ isIntersecting }) => isIntersecting);
  if (!current) return;
  for (const entry of entries.values()) entry.removeAttribute("aria-current");
  entries.get(current.target).setAttribute("aria-current", "location");
}
