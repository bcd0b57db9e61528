// The bar of the page's sections, which stays on top: where one is, and the way elsewhere.

import { findAll, make } from "./dom.js";

/** What counts as where one is: the part of the window between the bar and its upper third. */
const [BELOW_BAR, ABOVE] = ["-60px", "-66%"];

/** Fills the bar with the sections that are shown, and has it tell which one is read. */
export function showContents(bar) {
  const shown = findAll("main section[aria-labelledby]").filter((section) => !section.hidden);
  const tables = shown.filter((section) => section.parentElement.id === "tables");
  const entries = new Map();
  for (const section of shown.filter((each) => !tables.includes(each))) {
    const go = () => section.scrollIntoView();
    const button = make("button", { type: "button", onclick: go }, section.dataset.short ?? titleOf(section));
    entries.set(section, button);
    bar.append(make("li", {}, button));
  }
  if (tables.length) bar.append(make("li", {}, chooser(tables, entries)));
  const watch = new IntersectionObserver((seen) => mark(seen, entries), {
    rootMargin: `${BELOW_BAR} 0px ${ABOVE} 0px`,
  });
  for (const section of shown) watch.observe(section);
}

/** Lists the tables, which are too many for the bar. */
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

/** Marks the entry of the section that came to where one is. */
function mark(seen, entries) {
  const come = seen.findLast((one) => one.isIntersecting);
  if (!come) return;
  for (const entry of entries.values()) entry.removeAttribute("aria-current");
  entries.get(come.target).setAttribute("aria-current", "location");
}
