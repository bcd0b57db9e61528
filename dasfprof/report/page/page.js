// The page: what is where, and what answers to whom.

const MAX_LEGEND = 7;

class Page {
  constructor(facts) {
    this.facts = facts;
    this.columns = new Columns(facts.columns);
    this.tasks = new Tasks(facts.timeline, this.columns);
    this.searched = 0;
    /** A flag for each row that is lit; null: all are. */
    this.matches = null;
    showSummary(facts);
    const run = { wall: facts.summary.seconds, tasks: facts.summary.tasks };
    const about = (name) => this.drawer?.open(name);
    const follow = (at) => this.showFinding(at);
    this.findings = new Findings(facts.findings, run, byId("findings"), { follow, about });
    const events = {
      selected: (row) => this.onSelected(row),
      moved: (from, to) => this.onMoved(from, to),
    };
    this.timeline = new Timeline(this.tasks, byId("timeline"), events);
    this.strip = new Strip(this.tasks, byId("strip"), (from, to) => this.timeline.move(from, to));
    this.resources = new Resources(facts.resources, this.columns, byId("charts"));
    this.sources = new Sources(facts.timeline.code);
    this.flames = new Flames(facts.flame, this.columns, this.sources);
    showAccounting(byId("accounting"), facts.accounting);
    this.timeline.show(flattenView(this.tasks));
    this.onMoved(0, this.tasks.span);
  }

  /** Reads the columns, the most wanted first; `data-ready` tells how far it came. */
  async read() {
    const ready = (stage) => {
      document.documentElement.dataset.ready = stage;
      performance.mark(stage);
    };
    await this.tasks.readPicture();
    this.colour("function");
    byId("path-legend").replaceChildren(...pathLegend(this.tasks.path));
    this.view(this.tasks.path.rows.length ? "critical" : "flatten");
    this.timeline.paint();
    ready("picture");
    await breathe();
    await this.resources.read();
    await this.tasks.readRest();
    await this.flames.read();
    this.filters = new Filters(this.tasks, () => this.light());
    this.drawer = new Drawer(byId("function"), this);
    this.buildTables();
    this.listen();
    this.otherReport = new OtherReport(this);
    this.followLink();
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
      selected: (row) => this.timeline.select(row, { reveal: true }),
    });
    this.taskTable.sort(
      columns.find((column) => column.label === "Duration (s)"),
      true,
    );
    exportButton("task-csv", this.taskTable, "task_runs.csv");
    buildTables(facts, { about });
    for (const list of document.querySelectorAll(".status-legend")) {
      list.replaceChildren(...statusLegend(facts.timeline.statuses));
    }
    this.countRows();
  }

  listen() {
    for (const radio of document.querySelectorAll("input[name=view]")) {
      radio.addEventListener("change", () => this.view(radio.value));
    }
    const threshold = byId("threshold");
    threshold.value = String(usualThreshold(this.tasks));
    threshold.addEventListener("input", () => this.view("compact"));
    byId("colour").addEventListener("change", (event) => this.colour(event.target.value));
    byId("summed").addEventListener("change", (event) => this.resources.sum(event.target.checked));
    const search = byId("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.search((search.value = ""));
    });
    byId("show-all").addEventListener("click", () => this.showAll());
    byId("zoom-in").addEventListener("click", () => this.timeline.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.timeline.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.timeline.showWholeRun());
    addEventListener("hashchange", () => this.followLink());
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
      search.focus();
      event.preventDefault();
    });
    if (!this.tasks.steps) document.querySelector("#colour [value=step]").remove();
    for (const control of document.querySelectorAll("[data-waits]")) control.disabled = false;
  }

  view(name) {
    byId("threshold-box").hidden = name !== "compact";
    byId("path-legend").hidden = name !== "critical";
    document.querySelector(`input[name=view][value=${name}]`).checked = true;
    if (name === "compact") {
      const seconds = Number(byId("threshold").value) / 1000;
      const view = compactView(this.tasks, Number.isFinite(seconds) ? seconds : 0);
      this.timeline.show(view);
      byId("shown").textContent =
        `${formatCount(view.rows.length)} of ${formatCount(this.tasks.count)} task runs`;
      return;
    }
    byId("shown").textContent = "";
    const views = {
      critical: () => criticalView(this.tasks),
      flatten: () => flattenView(this.tasks),
      hierarchy: () => hierarchyView(this.tasks, this.timeline.opened),
    };
    this.timeline.show(views[name]());
  }

  colour(by) {
    this.timeline.colour(by);
    const entries = legend(this.tasks, by).filter(
      (entry) => entry.colour !== OTHER || by !== "function",
    );
    const shown = entries.slice(0, MAX_LEGEND).map(({ name, colour, seconds }) => {
      const swatch = make("i");
      swatch.style.background = `var(--series-${colour})`;
      const about = seconds === undefined ? "" : ` ${formatSeconds(seconds)}`;
      return make("li", {}, swatch, shortened(name, 28), make("small", {}, about));
    });
    const others = legend(this.tasks, by).length - shown.length;
    if (others > 0) {
      const swatch = make("i");
      swatch.style.background = `var(--series-${OTHER})`;
      const text = by === "function" ? `${others} others` : `and ${others} more, colours repeat`;
      shown.push(make("li", {}, by === "function" ? swatch : "", text));
    }
    byId("legend").replaceChildren(...shown);
  }

  async search(query) {
    const mine = ++this.searched;
    let found = null;
    if (query !== "") {
      found = await findKeys(this.tasks, query, () => mine !== this.searched);
      if (found === null) return;
    }
    this.filters.found = found;
    this.light();
  }

  /** Lights the task runs that the search and the filters leave, and lists these alone. */
  light() {
    const matches = this.filters.lit();
    this.matches = matches;
    this.timeline.highlight(matches);
    this.taskTable.filter(matches && ((row) => matches[row] === 1));
    this.countRows();
  }

  countRows() {
    const count = this.taskTable.rows.length;
    const all = `${formatCount(this.tasks.count)} task runs`;
    byId("found").textContent = this.matches ? `${formatCount(count)} found` : "";
    byId("show-all").hidden = !this.matches && !this.timeline.marked;
    byId("task-count").textContent = this.matches ? `${formatCount(count)} of ${all}` : all;
  }

  /** Selects the next match by track and time, or the last one. */
  nextMatch(step) {
    if (!this.matches) return;
    const { count } = this.tasks;
    const first = this.timeline.selected < 0 ? (step > 0 ? -1 : 0) : this.timeline.selected;
    for (let walked = 1; walked <= count; walked += 1) {
      const row = (((first + step * walked) % count) + count) % count;
      if (this.matches[row]) return this.timeline.select(row, { reveal: true });
    }
  }

  onSelected(row) {
    this.taskTable?.mark(row);
    const { tasks, flames } = this;
    const select = (other) => this.timeline.select(other, { reveal: true });
    const about = (name) => this.drawer.open(name);
    showDetails(byId("details"), { tasks, row, flames, select, about });
    byId("stage").classList.toggle("with-details", row >= 0);
    byId("said").textContent = row < 0 ? "" : this.told(row);
  }

  /** What a screen reader says of a task run. */
  told(row) {
    const { tasks } = this;
    const duration = formatSeconds(tasks.durations[row]);
    return visible(`${tasks.functionName(row)}, ${duration}, on ${tasks.workerName(row)}`);
  }

  onMoved(from, to) {
    this.strip?.window(from, to);
    this.resources?.window(from, to);
    const { step } = ticks(from, to, 1000, 20);
    byId("window").textContent =
      `${clockText(from, step)} to ${endText(to, step)}, ${formatSeconds(to - from)}`;
  }

  /**
   * Goes where the address points: #finding=NUMBER, or any of #view=…, #task=KEY (its last run; with
   * &run=2 the second), #search=TEXT, #function=NAME, #worker=NAME, #step=NAME, #time=FROM,TO;
   * #about=NAME opens the drawer of a function.
   */
  async followLink() {
    const link = new URLSearchParams(location.hash.slice(1));
    if (this.drawer.follows(link)) return;
    if (link.has("finding")) return this.showFinding(Number(link.get("finding")) - 1);
    this.findings.mark(null);
    if (this.timeline.marked) this.timeline.mark(null);
    const view = `input[name=view][value="${CSS.escape(link.get("view") ?? "")}"]`;
    if (document.querySelector(view)) this.view(link.get("view"));
    await this.only(link);
    const [from, to] = (link.get("time") ?? "").split(",").map(Number);
    if (to > from) this.timeline.move(from, to);
    if (link.has("task")) this.selectKey(link.get("task"), Number(link.get("run")));
    const places = ["time", "task", "search", ...FILTERS];
    if (places.some((name) => link.has(name))) byId("timeline-section").scrollIntoView();
  }

  /** Sets the search and the filters as a link has them; what it does not name is open to all. */
  async only(link) {
    for (const name of FILTERS) this.filters.choose(name, link.get(name));
    byId("search").value = link.get("search") ?? "";
    await this.search(byId("search").value);
  }

  /** Shows the time, function and worker that a finding speaks of, and nothing else lit. */
  async showFinding(at) {
    const row = this.findings.rows[at];
    if (!row) return;
    this.findings.mark(at);
    const { Function: name, Worker: worker, "Start (s)": start, "Stop (s)": stop } = row;
    this.view(name !== null || worker !== null ? "flatten" : "critical");
    this.timeline.select(-1);
    await this.only(
      new Map([
        ["function", name],
        ["worker", worker],
      ]),
    );
    this.timeline.mark(start !== null && stop !== null ? [start, stop] : null);
    this.timeline.revealLit();
    this.countRows();
    byId("timeline-section").scrollIntoView();
    this.timeline.overlay.focus({ preventScroll: true });
    byId("said").textContent = visible(`Timeline: ${row.Finding}`);
  }

  showAll() {
    this.findings.mark(null);
    this.timeline.mark(null);
    // In a notebook's frame the page has no path.
    history.replaceState(null, "", "#");
    this.only(new Map());
    this.timeline.overlay.focus({ preventScroll: true });
  }

  /** Selects a run of a key: one by its number, else the last. */
  selectKey(link, number) {
    const text = asTold(this.tasks, link);
    for (let key = 0; key < this.tasks.facts.keys; key += 1) {
      const runs = this.tasks.runsOf(key);
      if (runs.length && this.tasks.keyText(key) === text) {
        this.timeline.select(runs[number - 1] ?? runs.at(-1), { reveal: true });
        return;
      }
    }
  }
}

/** A threshold in milliseconds that leaves about one task in twenty. */
function usualThreshold(tasks) {
  const order = ascending(tasks.durations);
  const seconds = order.length ? tasks.durations[order[Math.floor(order.length * 0.95)]] : 0;
  return Number((seconds * 1000).toPrecision(2));
}

const facts = JSON.parse(byId("facts").textContent);
const page = new Page(facts);
page.timeline.paint();
performance.mark("overview");
addEventListener("DOMContentLoaded", () =>
  page.read().catch((error) => {
    byId("failed").textContent = `This browser could not read all of the report: ${error}`;
    byId("failed").hidden = false;
    throw error;
  }),
);
