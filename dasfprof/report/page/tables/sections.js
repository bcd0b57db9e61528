// Sections with tables whose values are lists.

import { byId, download, make } from "../dom.js";
import { shortened, visible } from "../format.js";
import { isOneText, isUnknown, listedColumns } from "./columns.js";
import { DataTable } from "./table.js";

/** Columns that select task runs, and their filters. */
const ABOUT = { Function: "function", Step: "step", Line: "line", Worker: "worker" };

/**
 * Adds a section for each table, and returns the tables.
 *
 * `selected` has a callback for chosen rows by the table's name. For other tables, `chosen(link)` is
 * called with the filters for the task runs of a chosen row, or without filters if it is chosen
 * again. A click on a function calls `about(name)`.
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
    const about = texts.filter(({ label }) => ABOUT[label]);
    /** Columns by the filter that they set. */
    this.filters = new Map(about.map(({ label, values }) => [ABOUT[label], values]));
    /** The row that set the filters, or -1. */
    this.source = -1;
    const filters = chosen && this.filters.size ? (row) => this.choose(row, chosen) : undefined;
    this.shown = new DataTable(root, { name: table.title, columns, count, selected: selected ?? filters });
    noteHidden(root, table);
    exportButton(`${name}-csv`, this.shown, table.file);
    byId(`${name}-filter`)?.addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      const holds = (row) => texts.some(({ values }) => values[row]?.toLowerCase().includes(wanted));
      this.shown.filter(wanted === "" ? null : holds);
    });
  }

  /** Returns the filters of a row, with their values. */
  aboutRow(row) {
    return [...this.filters].map(([name, values]) => [name, values[row]]).filter(([, value]) => value !== null);
  }

  choose(row, chosen) {
    this.source = this.source === row ? -1 : row;
    chosen(new URLSearchParams(this.source < 0 ? [] : this.aboutRow(row)));
  }

  /** Unmarks the chosen row if the filters are not those of this row any more. */
  unmark(filters) {
    if (this.source < 0) return;
    const about = this.aboutRow(this.source);
    if (about.length === filters.size && about.every(([name, value]) => filters.get(name) === value)) return;
    this.source = -1;
    this.shown.mark(-1);
  }
}

/** Lists the columns that are not shown, because they have the same text or no value in every row. */
function noteHidden(root, table) {
  const unknown = table.columns.filter(isUnknown).map(({ label }) => label);
  const same = table.columns.filter((column) => isOneText(column) && column.values[0]);
  const notes = same.map(({ label, values }) => `${label} is ${shortened(values[0], 60)} in every row.`);
  if (unknown.length) notes.unshift(`NA in every row: ${unknown.join(", ")}.`);
  if (notes.length) root.append(make("p", { class: "absent" }, visible(notes.join(" "))));
}

export function exportButton(id, table, file) {
  byId(id).addEventListener("click", async () => download(file, await table.csv()));
}
