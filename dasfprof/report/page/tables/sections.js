// The sections of tables that the page holds as lists.

import { byId, download, make } from "../dom.js";
import { shortened, visible } from "../format.js";
import { isOneText, isUnknown, listedColumns } from "./columns.js";
import { DataTable } from "./table.js";

/** The columns by which a row of a table is about some task runs, and the filters for these. */
const ABOUT = { Function: "function", Step: "step", Line: "line", Worker: "worker" };

/**
 * Adds a section for each table that the page holds, in their order, and gives the tables.
 *
 * `selected` has what is called with a row that is chosen, by the table's name; `chosen(link)` is
 * called with the filters for the task runs that a row of any other is about, none if it was chosen
 * before; `about(name)` when the name of a function is followed.
 */
export function buildTables(facts, { selected = {}, chosen = null, about = null } = {}) {
  const listed = [];
  for (const [name, table] of Object.entries(facts.tables)) {
    byId("tables").append(tableSection(name, table));
    const acts = { selected: selected[name], chosen, about };
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
  const root = make("div", { id: `${name}-table` });
  if (absent) root.append(make("p", { class: "absent" }, absent));
  section.append(root);
  return section;
}

class ListedTable {
  constructor(name, table, facts, { selected, chosen, about: follow }) {
    const root = byId(`${name}-table`);
    const count = table.columns[0]?.values.length ?? 0;
    const columns = listedColumns(table, follow, facts.timeline);
    const texts = table.columns.filter((column) => column.kind === "text");
    /** The columns that filters are of, by the filter. */
    const about = texts.filter(({ label }) => ABOUT[label]);
    this.filters = new Map(about.map(({ label, values }) => [ABOUT[label], values]));
    /** The row that filters were taken from; -1: none. */
    this.source = -1;
    const filters = chosen && this.filters.size ? (row) => this.choose(row, chosen) : undefined;
    this.shown = new DataTable(root, { name: table.title, columns, count, selected: selected ?? filters });
    noteUnknown(root, table);
    exportButton(`${name}-csv`, this.shown, table.file);
    byId(`${name}-filter`)?.addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      const holds = (row) => texts.some(({ values }) => values[row]?.toLowerCase().includes(wanted));
      this.shown.filter(wanted === "" ? null : holds);
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

  /** Marks no row once the filters are others than those of the chosen row. */
  unmark(filters) {
    if (this.source < 0) return;
    const about = this.aboutRow(this.source);
    if (about.length === filters.size && about.every(([name, value]) => filters.get(name) === value)) return;
    this.source = -1;
    this.shown.mark(-1);
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
