// The sections of tables that the page holds as lists.

import { byId, download, make } from "../dom.js";
import { shortened, visible } from "../format.js";
import { isOneText, isUnknown, listedColumns, withBars } from "./columns.js";
import { DataTable } from "./table.js";

/** The columns by which a row of a table is about some task runs, and the filters for these. */
const ABOUT = { Function: "function", Step: "step", Line: "line", Worker: "worker" };

/**
 * Adds a section for each table that the page holds, in their order, and gives the tables.
 *
 * `selected` has what is called with a row that is chosen, by the table's name; `chosen(link)` is
 * called with the filters for the task runs that a row of any other is about, none if it was chosen
 * before; `about(name)` when the name of a function is followed; `durations` has their histograms.
 */
export function buildTables(facts, { selected = {}, chosen = null, about = null, durations = null } = {}) {
  const listed = [];
  for (const [name, table] of Object.entries(facts.tables)) {
    byId("tables").append(tableSection(name, table));
    const acts = { selected: selected[name], chosen, about, durations };
    if (!table.absent) listed.push(new ListedTable(name, table, facts, acts));
  }
  return listed;
}

function tableSection(name, { title, absent, columns = [] }) {
  const head = make("header", { class: "section-head" }, make("h2", { id: `${name}-table-title` }, title));
  if (columns.some((column) => column.kind === "text")) {
    const search = { id: `${name}-filter`, type: "search", autocomplete: "off", spellcheck: "false" };
    head.append(make("label", {}, "Filter ", make("input", search)));
  }
  if (!absent) head.append(make("button", { type: "button", id: `${name}-csv` }, "Export CSV"));
  const section = make("section", { "aria-labelledby": `${name}-table-title` }, head);
  if (hasStatuses(name)) section.append(make("ul", { class: "legend status-legend" }));
  const root = make("div", { id: `${name}-table` });
  if (absent) root.append(make("p", { class: "absent" }, absent));
  section.append(root);
  return section;
}

function hasStatuses(name) {
  return name.endsWith("status");
}

class ListedTable {
  constructor(name, table, facts, { selected, chosen, about: follow, durations }) {
    const root = byId(`${name}-table`);
    const count = table.columns[0]?.values.length ?? 0;
    const listed = listedColumns(table, follow, facts.timeline);
    const names = name === "functions" && table.columns.find(({ label }) => label === "Function")?.values;
    const pictured = durations && names ? durations.columnIn(listed, names) : listed;
    const columns = hasStatuses(name) ? withBars(listed, facts.timeline.statuses) : pictured;
    this.texts = table.columns.filter((column) => column.kind === "text");
    /** The columns that filters are of, by the filter. */
    const about = this.texts.filter(({ label }) => ABOUT[label]);
    this.filters = new Map(about.map(({ label, values }) => [ABOUT[label], values]));
    /** The row that filters were taken from; -1: none. */
    this.source = -1;
    this.wanted = "";
    this.narrowed = new Map();
    const filters = chosen && this.filters.size ? (row) => this.choose(row, chosen) : undefined;
    this.shown = new DataTable(root, { name: table.title, columns, count, selected: selected ?? filters });
    this.told = make("p", { class: "absent", hidden: true });
    root.before(this.told);
    noteUnknown(root, table);
    exportButton(`${name}-csv`, this.shown, table.file);
    byId(`${name}-filter`)?.addEventListener("input", (event) => {
      this.wanted = event.target.value.toLowerCase();
      this.filter();
    });
  }

  /** What a row is about, by the filter. */
  aboutRow(row) {
    return [...this.filters].map(([name, values]) => [name, values[row]]).filter(([, value]) => value !== null);
  }

  choose(row, chosen) {
    this.source = this.source === row ? -1 : row;
    chosen(new URLSearchParams(this.source < 0 ? [] : this.aboutRow(row)));
  }

  /** Shows the rows about what filters let through; all if they were taken from one of the rows. */
  narrow(chosen) {
    const own = this.source < 0 ? [] : this.aboutRow(this.source);
    const isAlike = own.every(([name, value]) => chosen.get(name) === value);
    const isSource = own.length > 0 && own.length === chosen.size && isAlike;
    if (!isSource) {
      this.source = -1;
      if (this.shown.chosen >= 0 && this.filters.size) this.shown.mark(-1);
    }
    this.narrowed = new Map(isSource ? [] : [...chosen].filter(([name]) => this.filters.has(name)));
    const words = [...this.narrowed].map(([name, value]) => `${name} ${shortened(value, 60)}`);
    this.told.textContent = `Only ${words.join(", ")}.`;
    this.told.hidden = !words.length;
    this.filter();
  }

  filter() {
    const { wanted, narrowed, texts, filters } = this;
    const holds = (row) => texts.some(({ values }) => values[row]?.toLowerCase().includes(wanted));
    const passes = (row) => [...narrowed].every(([name, value]) => filters.get(name)[row] === value);
    const all = wanted === "" && !narrowed.size;
    this.shown.filter(all ? null : (row) => (wanted === "" || holds(row)) && passes(row));
  }
}

/** Says which columns are left out: nothing in them is known, or they say one thing. */
function noteUnknown(root, table) {
  const labels = table.columns.filter((column) => isUnknown(column)).map((column) => column.label);
  const told = table.columns
    .filter((column) => !isUnknown(column) && isOneText(column))
    .map(({ label, values }) => `${label} is ${shortened(values[0], 60) || "empty"} in every row.`);
  if (labels.length) told.unshift(`NA in every row: ${labels.join(", ")}.`);
  if (told.length) root.append(make("p", { class: "absent" }, visible(told.join(" "))));
}

export function exportButton(id, table, file) {
  byId(id).addEventListener("click", async () => download(file, await table.csv()));
}
