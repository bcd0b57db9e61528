// What is seen, as the fragment of the page's address: written as it changes, followed when it is given.

import { byId, find } from "./dom.js";
import { FILTERS } from "./timeline/filters.js";

/** Browsers refuse to write the address more often than some hundred times a minute. */
const WRITTEN_MS = 300;

/** The fragment that leads to what is seen: view, window, search, filters, finding, area, task. */
function fragmentOf({ timeline, tasks, filters, findings, lanes, legends, plan }) {
  const link = new URLSearchParams();
  lanes.write(link);
  legends.write(link);
  plan.write(link);
  const view = find("input[name=view]:checked").value;
  if (findings.marked !== null) link.set("finding", String(findings.marked + 1));
  link.set("view", view);
  if (view === "compact") link.set("least", byId("threshold").value);
  if (view === "hierarchy") link.set("open", [...timeline.opened].join(" "));
  if (timeline.to - timeline.from < timeline.whole) link.set("time", `${timeline.from},${timeline.to}`);
  if (byId("search").value) link.set("search", byId("search").value);
  for (const name of FILTERS) if (filters.chosen(name) !== null) link.set(name, filters.chosen(name));
  if (byId("summed").checked) link.set("summed", "1");
  if (timeline.area) link.set("area", ["from", "to", "first", "last"].map((end) => timeline.area[end]).join(","));
  if (timeline.gap) link.set("gap", `${timeline.gap.lane},${timeline.gap.time}`);
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
    // What is seen may be written over an address that was asked for and not followed yet.
    addEventListener("hashchange", (event) => this.follow(new URL(event.newURL).hash));
  }

  /** Writes what is seen, once nothing has changed for a while. */
  note() {
    clearTimeout(this.asked);
    this.asked = setTimeout(() => {
      // The drawer of a function has an address of its own.
      if (!byId("function").open) this.write();
    }, WRITTEN_MS);
  }

  /** Writes what is seen; gives the whole address. */
  write() {
    const fragment = fragmentOf(this.page);
    // In a notebook's frame the page has no path.
    history.replaceState(null, "", fragment);
    return `${location.href.split("#")[0]}${fragment}`;
  }

  /**
   * Goes where the address points: any of #finding=NUMBER, #view=…, #task=KEY (its last run; with
   * &run=2 the second), #search=TEXT, #function=NAME, #worker=NAME, #step=NAME, #line=NAME, #state=NAME,
   * #time=FROM,TO, #area=FROM,TO,FIRST,LAST, #gap=LANE,TIME,
   * #least=MILLISECONDS, #open=BRANCHES, #summed=1, and those of `Lanes`, `Legends` and `PlanPicture`;
   * #about=NAME opens the drawer of a function.
   */
  async follow(hash = location.hash) {
    const { page } = this;
    const link = new URLSearchParams(hash.slice(1));
    if (page.drawer.follows(link)) return;
    if (link.has("finding")) {
      await page.showFinding(Number(link.get("finding")) - 1);
      if (link.size === 1) return;
    } else page.markFinding(null);
    if (link.has("least")) byId("threshold").value = link.get("least");
    if (link.has("open")) page.timeline.opened = new Set(link.get("open").split(" "));
    const view = find(`input[name=view][value="${CSS.escape(link.get("view") ?? "")}"]`);
    if (view) view.checked = true;
    if (page.lanes.read(link) || view) page.arrange();
    if (link.has("summed")) page.sum(link.get("summed") === "1");
    await page.only(link);
    const numbers = (name) => (link.get(name) ?? "").split(",").map(Number);
    const [from, to] = numbers("time");
    if (to > from) page.timeline.move(from, to);
    const [begin, end, first, last] = numbers("area");
    if (end > begin && first >= 0 && last >= first && last < page.timeline.view.tracks.length)
      page.area.show({ from: begin, to: end, first, last });
    const places = ["time", "task", "gap", "search", "class", "nodes", ...FILTERS];
    if (FILTERS.some((name) => link.has(name))) page.timeline.revealLit();
    if (places.some((name) => link.has(name))) byId("timeline-section").scrollIntoView();
    this.select(link, ...numbers("gap"));
  }

  /** Selects the task run of a link, or the time between two on a lane. */
  select(link, lane = NaN, time = NaN) {
    const { tasks, timeline, gaps } = this.page;
    if (tasks.tracks[lane] && time >= 0) timeline.selectGap(gaps.told(lane, time));
    if (link.has("task")) this.page.selectKey(link.get("task"), Number(link.get("run")));
  }
}
