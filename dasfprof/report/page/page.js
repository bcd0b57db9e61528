// The page: what is where, and what answers to whom.

const MAX_LEGEND = 7;

class Page {
  constructor(facts) {
    this.facts = facts;
    this.columns = new Columns(facts.columns);
    this.tasks = new Tasks(facts.timeline, this.columns);
    this.searched = 0;
    showSummary(facts);
    const events = {
      selected: (row) => this.onSelected(row),
      moved: (from, to) => this.onMoved(from, to),
    };
    this.timeline = new Timeline(this.tasks, byId("timeline"), events);
    this.strip = new Strip(this.tasks, byId("strip"), (from, to) => this.timeline.move(from, to));
    this.resources = new Resources(facts.resources, this.columns, byId("charts"));
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
    this.buildTables();
    this.listen();
    this.followLink();
    ready("whole");
  }

  buildTables() {
    const { tasks, facts } = this;
    const columns = taskColumns(tasks);
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
    for (const [name, title, file] of [
      ["functions", "Functions by worker", "function_bottleneck.csv"],
      ["status", "Status of functions", "function_status.csv"],
      ["balance", "Tasks in memory", "task_balance.csv"],
    ]) {
      const root = byId(`${name}-table`);
      const table = facts.tables[name];
      if (table.absent) {
        root.append(make("p", { class: "absent" }, table.absent));
        byId(`${name}-csv`).hidden = true;
        continue;
      }
      const count = table.columns[0]?.values.length ?? 0;
      const listed = listedColumns(table);
      const columns = name === "status" ? withBars(listed, facts.timeline.statuses) : listed;
      const shown = new DataTable(root, { name: title, columns, count });
      noteUnknown(root, table);
      exportButton(`${name}-csv`, shown, file);
      filterBox(`${name}-filter`, shown, table);
    }
    byId("status-legend").replaceChildren(...statusLegend(facts.timeline.statuses));
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
    byId("zoom-in").addEventListener("click", () => this.timeline.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.timeline.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.timeline.showAll());
    addEventListener("hashchange", () => this.followLink());
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
      search.focus();
      event.preventDefault();
    });
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
      functions: () => functionsView(this.tasks, this.timeline.opened),
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
    let matches = null;
    if (query !== "") {
      matches = await this.tasks.search(query, () => mine !== this.searched);
      if (matches === null) return;
    }
    this.matches = matches;
    this.timeline.highlight(matches);
    const { keys } = this.tasks;
    this.taskTable.filter(matches && ((row) => matches[keys[row]] === 1));
    this.countRows();
  }

  countRows() {
    const count = this.taskTable.rows.length;
    const all = `${formatCount(this.tasks.count)} task runs`;
    byId("found").textContent = this.matches ? `${formatCount(count)} found` : "";
    byId("task-count").textContent = this.matches ? `${formatCount(count)} of ${all}` : all;
  }

  /** Selects the next match by lane and time, or the last one. */
  nextMatch(step) {
    if (!this.matches) return;
    const { keys, count } = this.tasks;
    const first = this.timeline.selected < 0 ? (step > 0 ? -1 : 0) : this.timeline.selected;
    for (let walked = 1; walked <= count; walked += 1) {
      const row = (((first + step * walked) % count) + count) % count;
      if (this.matches[keys[row]]) return this.timeline.select(row, { reveal: true });
    }
  }

  onSelected(row) {
    this.taskTable?.mark(row);
    showDetails(byId("details"), this.tasks, row, (other) =>
      this.timeline.select(other, { reveal: true }),
    );
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
      `${clockText(from, step)} to ${clockText(to, step)}, ${formatSeconds(to - from)}`;
  }

  /** Goes where the address points: #view=…, #task=KEY, #function=NAME, #time=FROM,TO. */
  followLink() {
    const link = new URLSearchParams(location.hash.slice(1));
    if (
      link.has("view") &&
      document.querySelector(`input[name=view][value="${CSS.escape(link.get("view"))}"]`)
    ) {
      this.view(link.get("view"));
    }
    const wanted = link.get("function") ?? link.get("search");
    if (wanted !== null) this.search((byId("search").value = wanted));
    const [from, to] = (link.get("time") ?? "").split(",").map(Number);
    if (to > from) this.timeline.move(from, to);
    if (link.has("task")) this.selectKey(link.get("task"));
  }

  selectKey(text) {
    for (let key = 0; key < this.tasks.facts.keys; key += 1) {
      if (this.tasks.rowOfKey[key] >= 0 && this.tasks.keyText(key) === text) {
        this.timeline.select(this.tasks.rowOfKey[key], { reveal: true });
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

/** Says which columns are left out because nothing in them is known. */
function noteUnknown(root, table) {
  const labels = table.columns.filter((column) => isUnknown(column)).map((column) => column.label);
  if (labels.length)
    root.append(make("p", { class: "absent" }, `NA in every row: ${visible(labels.join(", "))}.`));
}

function exportButton(id, table, file) {
  byId(id).addEventListener("click", async () => download(file, await table.csv()));
}

function filterBox(id, table, facts) {
  const texts = facts.columns.filter((column) => column.kind === "text");
  byId(id)?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    const holds = (row) => texts.some(({ values }) => values[row]?.toLowerCase().includes(wanted));
    table.filter(wanted === "" ? null : holds);
  });
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
