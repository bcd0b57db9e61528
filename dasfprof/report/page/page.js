// The report page. It creates the parts of the page and connects them.

import { showAccounting } from "./accounting.js";
import { Address } from "./address.js";
import { showContents } from "./contents.js";
import { Columns, rowsOf } from "./data.js";
import { breathe, byId, find, findAll, readPage } from "./dom.js";
import { Findings, placesOf } from "./findings.js";
import { Flames } from "./flame/flames.js";
import { Sources } from "./flame/sources.js";
import { formatCount, formatSeconds, shortened, visible } from "./format.js";
import { Drawer } from "./functions/drawer.js";
import { Resources } from "./resources/resources.js";
import { PlanPicture } from "./plan/plan.js";
import { showSummary, Strip } from "./summary.js";
import { taskColumns } from "./tables/columns.js";
import { buildTables, exportButton } from "./tables/sections.js";
import { DataTable } from "./tables/table.js";
import { Area } from "./timeline/area.js";
import { ClientTimes } from "./timeline/client.js";
import { functionColours } from "./timeline/colours.js";
import { Dock } from "./timeline/dock.js";
import { FILTERS, Filters } from "./timeline/filters.js";
import { Gaps } from "./timeline/gaps.js";
import { Lanes } from "./timeline/lanes.js";
import { Legends } from "./timeline/legend.js";
import { clockText, endText, ticks } from "./timeline/marks.js";
import { criticalView } from "./timeline/path.js";
import { asShown, findRows } from "./timeline/search.js";
import { StepBand } from "./timeline/steps.js";
import { Tasks } from "./timeline/tasks.js";
import { Timeline } from "./timeline/timeline.js";
import { Transfers } from "./timeline/transfers.js";
import { compactView, flattenView, hierarchyView, usualThreshold } from "./timeline/views.js";

class Page {
  constructor(facts) {
    this.facts = facts;
    this.columns = new Columns(facts.columns);
    this.tasks = new Tasks(facts.timeline, this.columns);
    this.tasks.transfers = new Transfers(facts.timeline.transfers, facts.timeline.workers);
    this.searched = 0;
    /** A flag for each row, 1 if it is highlighted, or null if all are. */
    this.matches = null;
    showSummary(facts);
    // Empty sections are hidden. A notebook's frame also hides more of the page.
    if (!facts.timeline.tasks) document.documentElement.dataset.empty = parent === window ? "page" : "frame";
    const run = { wall: facts.summary.seconds, tasks: facts.summary.tasks };
    const about = (name) => this.drawer?.open(name);
    const follow = (at) => this.showFinding(at);
    const findings = { table: facts.findings, places: facts.places };
    this.findings = new Findings(findings, run, byId("findings"), { follow, about });
    const events = {
      selected: (row, how) => this.onSelected(row, how),
      gap: (gap) => this.onGap(gap),
      moved: (from, to) => this.onMoved(from, to),
      pointed: (time) => this.onPointed(time),
      chosen: (area) => this.area.show(area),
      step: (name) => this.only(new URLSearchParams([["step", name]])),
      dragsChoose: () => byId("choose").getAttribute("aria-pressed") === "true",
    };
    this.timeline = new Timeline(this.tasks, byId("timeline"), events);
    this.dock = new Dock(this);
    this.strip = new Strip(this.tasks, byId("strip"), (from, to) => this.timeline.move(from, to));
    this.resources = new Resources(facts.resources, this.columns, byId("charts"), {
      pointed: (time) => this.onPointed(time),
      colourOf: functionColours(this.tasks),
    });
    this.area = new Area(this, byId("area"));
    this.sources = new Sources(facts.timeline.code);
    this.flames = new Flames(facts.flame, this.columns, this.sources);
    this.client = new ClientTimes(facts.client);
    showAccounting(byId("accounting"), facts.accounting, facts.timeline.gaps.classes);
    // The page has its final layout before it has its colours.
    this.timeline.show(flattenView(this.tasks));
    this.onMoved(0, this.tasks.span);
  }

  /** Reads the columns and shows them. The attribute `data-ready` names the stage that is complete. */
  async read() {
    const ready = (stage) => {
      document.documentElement.dataset.ready = stage;
      performance.mark(stage);
    };
    await this.tasks.readPicture();
    await this.tasks.readGaps();
    this.gaps = this.tasks.gaps = this.timeline.painter.gaps = new Gaps(this.tasks);
    if (this.tasks.steps) this.timeline.band = new StepBand(this.tasks);
    this.lanes = new Lanes(this.tasks);
    this.legends = new Legends(this, rowsOf(this.facts.accounting.cluster));
    this.colour("function");
    this.view(this.tasks.path.rows.length ? "critical" : "flatten");
    this.timeline.paint();
    ready("picture");
    await breathe();
    await this.resources.read();
    await this.tasks.transfers.read(this.columns);
    await this.tasks.readDetails();
    await this.flames.read();
    await this.client.read(this.columns);
    this.filters = new Filters(this.tasks, () => this.light());
    this.plan = new PlanPicture(this, (await this.columns.group("plan")).nodes);
    this.filters.plan = this.plan;
    this.drawer = new Drawer(byId("function"), this);
    this.buildTables();
    await breathe();
    showContents(find("#contents ul"));
    this.listen();
    this.address = new Address(this);
    await this.address.follow();
    ready("whole");
  }

  buildTables() {
    const { tasks, facts } = this;
    const about = (name) => this.drawer.open(name);
    const columns = taskColumns(tasks, about);
    this.taskTable = new DataTable(byId("task-table"), {
      name: "Task runs",
      columns,
      count: tasks.count,
      // The page does not scroll away from the table.
      selected: (row) => this.timeline.select(row, { reveal: true, scroll: false }),
    });
    this.taskTable.sort(columns.find((column) => column.label === "Duration (s)"), true);
    exportButton("task-csv", this.taskTable, "task_runs.csv");
    const chosen = (link) => this.only(link);
    this.listed = buildTables(facts, { about, chosen });
    this.countRows();
  }

  listen() {
    for (const radio of findAll("input[name=view]")) {
      radio.addEventListener("change", () => this.view(radio.value));
    }
    const threshold = byId("threshold");
    threshold.value = String(usualThreshold(this.tasks));
    threshold.addEventListener("input", () => this.view("compact"));
    byId("order").addEventListener("change", (event) => {
      this.lanes.order = event.target.value;
      this.arrange();
    });
    byId("fold-all").addEventListener("click", () => {
      this.lanes.folded = !this.lanes.folded;
      this.arrange();
    });
    byId("transfers").addEventListener("change", (event) => {
      this.lanes.transfers = event.target.checked ? this.tasks.transfers : null;
      this.arrange();
    });
    byId("transfers-box").hidden = !this.tasks.transfers.facts.all;
    byId("fold-all").hidden = !this.lanes.foldable;
    byId("colour").addEventListener("change", (event) => this.colour(event.target.value));
    const search = byId("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.search((search.value = ""));
    });
    for (const id of ["show-all", "show-all-again"]) byId(id).addEventListener("click", () => this.showAll());
    byId("to-timeline").addEventListener("click", () => byId("timeline-section").scrollIntoView());
    const choose = byId("choose");
    choose.addEventListener("click", () => {
      choose.setAttribute("aria-pressed", String(choose.getAttribute("aria-pressed") !== "true"));
    });
    byId("zoom-in").addEventListener("click", () => this.timeline.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.timeline.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.timeline.showFullRun());
    addEventListener("keydown", (event) => this.onEscape(event), { capture: true });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || document.activeElement.matches("input, select, textarea")) return;
      search.focus();
      event.preventDefault();
    });
    if (!this.tasks.steps) find("#colour [value=step]").remove();
    for (const control of findAll("[data-waits]")) control.disabled = false;
  }

  /** Clears the area, or else the selection, or else filters and the times of a finding. */
  onEscape(event) {
    if (event.key !== "Escape" || byId("function").open) return;
    if (event.target.closest?.("input, select, textarea, .flame")) return;
    const { timeline } = this;
    if (timeline.area) this.area.show(null);
    else if (timeline.selected >= 0 || timeline.gap) timeline.select(-1);
    else if (this.matches || timeline.marked || this.legends.chosen.length) this.showAll({ focus: false });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  view(name) {
    this.address?.note();
    byId("threshold-box").hidden = name !== "compact";
    byId("path-legend").hidden = name !== "critical";
    for (const id of ["gap-legend", "order-box", "lane-tools"]) byId(id).hidden = name === "hierarchy";
    find(`input[name=view][value=${name}]`).checked = true;
    const seconds = Number(byId("threshold").value) / 1000;
    const views = {
      critical: () => criticalView(this.tasks),
      flatten: () => flattenView(this.tasks),
      compact: () => compactView(this.tasks, Number.isFinite(seconds) ? seconds : 0),
      hierarchy: () => hierarchyView(this.tasks, this.timeline.opened),
    };
    const view = views[name]();
    this.timeline.show(this.lanes.arrange(view));
    const count = `${formatCount(view.rows.length)} of ${formatCount(this.tasks.count)} task runs`;
    byId("shown").textContent = name === "compact" ? count : "";
  }

  /** Shows the tracks in their current order. */
  arrange() {
    const { lanes, timeline } = this;
    byId("fold-all").setAttribute("aria-pressed", String(lanes.folded));
    const { scroll } = timeline;
    this.view(find("input[name=view]:checked").value);
    timeline.scrollTo(scroll);
  }

  colour(by) {
    byId("colour").value = by;
    this.timeline.colour(by);
    this.legends.colour(by);
  }

  async search(query) {
    const number = ++this.searched;
    let matches = null;
    if (query !== "") {
      matches = await findRows(this.tasks, query, () => number !== this.searched);
      if (matches === null) return;
    }
    this.filters.matches = matches;
    this.light();
  }

  /** Highlights the task runs that match the search and the filters, and lists only these. */
  light() {
    const matches = this.filters.lit();
    this.matches = matches;
    this.timeline.highlight(matches);
    this.taskTable.filter(matches && ((row) => matches[row] === 1));
    for (const table of this.listed) table.unmark(this.chosen);
    this.countRows();
    this.address?.note();
  }

  /** The chosen names, by filter. */
  get chosen() {
    const wanted = FILTERS.filter((name) => this.filters.chosen(name) !== null);
    return new Map(wanted.map((name) => [name, this.filters.chosen(name)]));
  }

  countRows() {
    const { tasks, filters, matches } = this;
    const count = this.taskTable.rows.length;
    const all = `${formatCount(tasks.count)} task runs`;
    const searched = filters?.matches?.reduce((sum, flag) => sum + flag, 0) ?? count;
    const hidden = searched > count ? `, ${formatCount(searched - count)} more hidden by filters` : "";
    byId("found").textContent = matches ? `${formatCount(count)} found${hidden}` : "";
    byId("show-all").hidden = !matches && !this.timeline.marked && !this.legends?.chosen.length;
    byId("filtered").hidden = !matches;
    const names = matches ? [...this.chosen.entries()].map((entry) => entry.join(" ")) : [];
    names.push(...(this.plan?.chosenNames ?? []));
    if (byId("search").value) names.push(`“${byId("search").value}”`);
    const only = names.join(", ") || "what the legend shows";
    byId("filtered-by").textContent = shortened(`Only ${only}: ${formatCount(count)} of ${all}${hidden}`, 300);
    byId("task-count").textContent = matches ? `${formatCount(count)} of ${all}` : all;
  }

  /** Selects the next match by track and time, or the previous one for a step of -1. */
  nextMatch(step) {
    if (!this.matches) return;
    const { count } = this.tasks;
    const first = this.timeline.selected < 0 ? (step > 0 ? -1 : 0) : this.timeline.selected;
    for (let steps = 1; steps <= count; steps += 1) {
      const row = (((first + step * steps) % count) + count) % count;
      if (this.matches[row]) return this.timeline.select(row, { reveal: true });
    }
  }

  onSelected(row, how) {
    this.taskTable?.mark(row);
    this.dock.showTask(row, how);
    this.address?.note();
  }

  onGap(gap) {
    this.dock.showGap(gap);
    this.address?.note();
  }

  /** Draws a line at a time in the timeline and the charts, or no line for null. */
  onPointed(time) {
    this.timeline.point(time);
    this.resources.point(time);
  }

  onMoved(from, to) {
    this.strip?.window(from, to);
    this.resources?.window(from, to);
    const { step } = ticks(from, to, 1000, 20);
    byId("window").textContent =
      `${clockText(from, step)} to ${endText(to, step)}, ${formatSeconds(to - from)}`;
    this.address?.note();
  }

  /** Sets the search and the filters of a link, and clears those that it does not contain. */
  async only(link) {
    for (const name of FILTERS) this.filters.choose(name, link.get(name));
    byId("search").value = link.get("search") ?? "";
    this.legends.choose(link.getAll("class"));
    if (this.plan.chosen.length) this.plan.choose([]);
    await this.search(byId("search").value);
  }

  /** Marks a finding, or no finding and no times for null. */
  markFinding(at) {
    this.findings.mark(at);
    if (at === null && this.timeline.marked) this.timeline.mark(null);
  }

  /** Shows a finding in the timeline, and highlights only its task runs. */
  async showFinding(at) {
    const row = this.findings.rows[at];
    if (!row) return;
    this.findings.mark(at);
    const { common, spans } = placesOf(row, this.facts.places[at]);
    const wanted = new URLSearchParams(Object.entries(common).filter(([, name]) => name !== null));
    this.view(wanted.size ? "flatten" : "critical");
    this.timeline.select(-1);
    await this.only(wanted);
    // A finding may have no task runs in the timeline, but times.
    if (this.matches && !this.matches.includes(1)) await this.only(new URLSearchParams());
    this.timeline.mark(spans);
    this.timeline.revealLit();
    this.countRows();
    byId("timeline-section").scrollIntoView();
    this.timeline.overlay.focus({ preventScroll: true });
    byId("said").textContent = visible(`Timeline: ${row.Finding}`);
  }

  showAll({ focus = true } = {}) {
    this.markFinding(null);
    this.only(new URLSearchParams());
    if (focus) this.timeline.overlay.focus({ preventScroll: true });
  }

  /** Selects a run of a key by its number, or the last run. */
  selectKey(link, number) {
    const text = asShown(this.tasks, link);
    for (let key = 0; key < this.tasks.facts.keys; key += 1) {
      const runs = this.tasks.runsOf(key);
      if (runs.length && this.tasks.keyText(key) === text) {
        this.timeline.select(runs[number - 1] ?? runs.at(-1), { reveal: true });
        return;
      }
    }
  }
}

/** In a notebook's frame, sends the height of the page to `notebook.js` whenever it changes. */
function sendHeight() {
  const root = document.documentElement;
  const send = () => {
    const scrollbar = innerHeight - root.clientHeight; // below a page that is wider than its frame
    parent.postMessage({ dasfprofHeight: Math.ceil(root.getBoundingClientRect().height + scrollbar) }, "*");
  };
  if (parent !== window) new ResizeObserver(send).observe(root);
}

find("main").classList.remove("undrawn");
const facts = JSON.parse(byId("facts").textContent);
const page = new Page(facts);
sendHeight();
readPage(() => page.read());
