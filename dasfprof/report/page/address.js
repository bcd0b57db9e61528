// The fragment of the page's address, which describes what is shown.

import { byId, find } from "./dom.js";
import { FILTERS } from "./timeline/filters.js";

/** Milliseconds between changes of the address, since browsers limit their number. */
const WRITTEN_MS = 300;

/** Returns the fragment for the finding, view, time window, search, filters, category and task run that are shown. */
function fragmentOf({ timeline, tasks, filters, findings, legends }) {
  const link = new URLSearchParams();
  if (findings.marked !== null) link.set("finding", String(findings.marked + 1));
  link.set("view", find("input[name=view]:checked").value);
  if (!timeline.showsAll) link.set("time", `${timeline.from},${timeline.to}`);
  if (byId("search").value) link.set("search", byId("search").value);
  for (const name of FILTERS) if (filters.chosen(name) !== null) link.set(name, filters.chosen(name));
  for (const name of legends.chosen) link.append("class", name);
  const row = timeline.selected;
  if (row >= 0) {
    link.set("task", tasks.keyText(tasks.keys[row]));
    link.set("run", String(tasks.runsOf(tasks.keys[row]).indexOf(row) + 1));
  }
  return `#${link}`;
}

export class Address {
  constructor(page) {
    this.page = page;
    // The current state may be written over an address that was requested and not followed yet.
    addEventListener("hashchange", (event) => this.follow(new URL(event.newURL).hash));
  }

  /** Updates the address after a short time without changes. */
  note() {
    clearTimeout(this.asked);
    this.asked = setTimeout(() => {
      // The drawer of a function has another address. In a notebook's frame, the page has no path.
      if (!byId("function").open) history.replaceState(null, "", fragmentOf(this.page));
    }, WRITTEN_MS);
  }

  /**
   * Shows what the address describes: any of #finding=NUMBER, #view=NAME, #task=KEY (its last run; with
   * &run=2 the second), #search=TEXT, #function=NAME, #worker=NAME, #step=NAME, #line=NAME, #state=NAME,
   * #class=CATEGORY, #time=FROM,TO; #about=NAME opens the drawer of a function.
   */
  async follow(hash = location.hash) {
    const { page } = this;
    const link = new URLSearchParams(hash.slice(1));
    if (page.drawer.follows(link)) return;
    if (link.has("finding")) {
      await page.showFinding(Number(link.get("finding")) - 1);
      if (link.size === 1) return;
    } else page.markFinding(null);
    if (find(`input[name=view][value="${CSS.escape(link.get("view") ?? "")}"]`)) page.view(link.get("view"));
    await page.only(link);
    const [from, to] = (link.get("time") ?? "").split(",").map(Number);
    if (to > from) page.timeline.move(from, to);
    if (FILTERS.some((name) => link.has(name))) page.timeline.revealLit();
    const shown = ["time", "task", "search", "class", ...FILTERS];
    if (shown.some((name) => link.has(name))) byId("timeline-section").scrollIntoView();
    if (link.has("task")) page.selectKey(link.get("task"), Number(link.get("run")));
  }
}
