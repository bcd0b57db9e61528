// Tables of any length. Only visible rows are elements.

import { breathe, make } from "../dom.js";
import { csvCell, visible } from "../format.js";

const ROW_HEIGHT = 26;
/** Browsers cap an element's height; beyond this, scrolling is in proportion. */
const MAX_HEIGHT = 30_000_000;
const CSV_SLICE = 20_000;

/**
 * @typedef {object} Column
 * @property {string} label
 * @property {string} [head] heading on the page, if it differs from the label in CSV files
 * @property {string} [title] tooltip of the heading
 * @property {number} width minimum, in em
 * @property {number} grow part of the remaining width that it gets
 * @property {boolean} [numeric]
 * @property {boolean} [hidden] whether only CSV files have it
 * @property {boolean} [isKey] whether narrow cells leave out the middle of its texts
 * @property {number} [place] position among the columns on the page
 * @property {(row: number) => string} text for the page
 * @property {(row: number) => any} value for CSV files
 * @property {?(row: number) => void} [follow] called for a click on its text, or Enter on the row
 * @property {() => Uint32Array} [order] the rows in ascending order. By default, values are compared.
 */

/** A table that can be sorted and filtered. */
export class DataTable {
  root; name; count; selected;
  /** @type {Column[]} */ columns;

  constructor(root, { name, columns, count, selected = () => {} }) {
    Object.assign(this, { root, name, count, selected });
    this.all = columns;
    const place = (column) => column.place ?? 0;
    this.columns = columns.filter((column) => !column.hidden).sort((one, other) => place(one) - place(other));
    this.chosen = -1;
    this.test = null;
    this.sorted = { column: null, descending: true };
    this.inOrder = Uint32Array.from({ length: count }, (_, row) => row);
    this.build();
  }

  build() {
    this.head = make("div", { class: "row head", role: "row" });
    this.layOut(this.head);
    this.headers = this.columns.map((column) => {
      const button = make(
        "button",
        { type: "button", title: column.title || null, onclick: () => this.sort(column) },
        visible(column.head ?? column.label),
      );
      const header = make("div", { role: "columnheader", class: column.numeric ? "number" : "" }, button);
      this.head.append(header);
      return header;
    });
    this.spacer = make("div", { class: "spacer" });
    this.body = make("div", { class: "rows", role: "rowgroup" });
    this.box = make(
      "div",
      { class: "table", role: "grid", tabindex: "0", "aria-label": this.name },
      ...[this.head, this.spacer, this.body],
    );
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-row]");
      if (row) this.choose(Number(row.dataset.row));
    });
    this.root.classList.add("wide");
    this.root.replaceChildren(this.box);
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.refresh();
  }

  /** Sets the widths of a row's cells. */
  layOut(element) {
    element.style.gridTemplateColumns = this.columns
      .map(({ width, grow }) => `minmax(${width}em, ${grow}fr)`)
      .join(" ");
    element.style.minWidth = `${this.columns.reduce((sum, { width }) => sum + width, 0)}em`;
  }

  /** Sorts by a column, or reverses the order if the table is sorted by it. */
  sort(column, descending) {
    const again = this.sorted.column === column;
    this.sorted = { column, descending: descending ?? (again ? !this.sorted.descending : column.numeric) };
    for (const [at, header] of this.headers.entries()) {
      const direction = this.sorted.descending ? "descending" : "ascending";
      header.setAttribute("aria-sort", this.columns[at] === column ? direction : "none");
    }
    this.inOrder = sortedRows(column, this.count);
    if (this.sorted.descending) this.inOrder.reverse();
    this.refresh();
  }

  /** Shows only the rows for which the test is true, or all rows for null. */
  filter(test) {
    this.test = test;
    this.refresh();
  }

  refresh() {
    this.rows = this.test ? this.inOrder.filter(this.test) : this.inOrder;
    this.place = null;
    this.spacer.style.height = `${Math.min(this.rows.length * ROW_HEIGHT, MAX_HEIGHT)}px`;
    this.box.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.draw();
  }

  draw() {
    const { box, rows } = this;
    const seen = Math.max(1, Math.ceil(box.clientHeight / ROW_HEIGHT));
    const most = Math.max(0, rows.length - seen + 1);
    const way = box.scrollHeight - box.clientHeight;
    const inProportion = rows.length * ROW_HEIGHT > MAX_HEIGHT;
    const first = inProportion
      ? Math.round((box.scrollTop / Math.max(way, 1)) * most)
      : Math.floor(box.scrollTop / ROW_HEIGHT);
    const top = inProportion ? box.scrollTop : first * ROW_HEIGHT;
    this.body.style.transform = `translateY(${top}px)`;
    const elements = [];
    for (let at = first; at < Math.min(first + seen + 1, rows.length); at += 1)
      elements.push(this.rowElement(at));
    this.body.replaceChildren(...elements);
    const beyond = box.scrollWidth - box.clientWidth - box.scrollLeft;
    this.root.classList.toggle("goes-on", beyond > 1);
  }

  rowElement(at) {
    const row = this.rows[at];
    const cells = this.columns.map((column) => {
      const text = column.text(row);
      return make(
        "div",
        { role: "gridcell", class: column.numeric ? "number" : "", title: column.numeric ? null : text },
        column.follow && text ? this.link(column, row, text) : column.isKey ? elided(text) : text,
      );
    });
    const chosen = row === this.chosen;
    const attributes = {
      class: "row",
      role: "row",
      "data-row": row,
      "aria-rowindex": at + 2,
      "aria-selected": String(chosen),
    };
    const element = make("div", attributes, ...cells);
    this.layOut(element);
    return element;
  }

  link(column, row, text) {
    const onclick = (event) => {
      event.stopPropagation();
      column.follow(row);
    };
    return make("button", { type: "button", class: "link", tabindex: "-1", onclick }, text);
  }

  /** Marks a row and calls `selected`. */
  choose(row) {
    this.mark(row);
    this.selected(row);
  }

  /** Marks a row and scrolls to it. */
  mark(row) {
    this.chosen = row;
    const at = row < 0 ? -1 : this.placeOf(row);
    if (at >= 0) this.scrollTo(at);
    this.draw();
  }

  placeOf(row) {
    if (!this.place) {
      this.place = new Int32Array(this.count).fill(-1);
      for (let at = 0; at < this.rows.length; at += 1) this.place[this.rows[at]] = at;
    }
    return this.place[row];
  }

  scrollTo(at) {
    const { box } = this;
    const room = box.clientHeight - ROW_HEIGHT;
    if (this.rows.length * ROW_HEIGHT > MAX_HEIGHT) {
      box.scrollTop = (at / this.rows.length) * (box.scrollHeight - box.clientHeight);
    } else if (at * ROW_HEIGHT < box.scrollTop) box.scrollTop = at * ROW_HEIGHT;
    else if ((at + 1) * ROW_HEIGHT > box.scrollTop + room)
      box.scrollTop = (at + 1) * ROW_HEIGHT - room;
  }

  onKey(event) {
    if (event.target !== this.box) return;
    if (event.key === "Enter" && this.chosen >= 0) {
      event.preventDefault(); // It would press the element that gets the focus.
      this.columns.find((column) => column.follow)?.follow(this.chosen);
    }
    const page = Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !this.rows.length) return;
    const now = this.chosen < 0 ? -1 : this.placeOf(this.chosen);
    const at = Math.min(Math.max(now + steps[event.key], 0), this.rows.length - 1);
    this.choose(this.rows[at]);
    event.preventDefault();
  }

  /** Returns the rows in the order of the page as a CSV file, in parts. */
  async csv() {
    const parts = [`${this.all.map((column) => csvCell(column.label)).join(",")}\n`];
    for (let first = 0; first < this.rows.length; first += CSV_SLICE) {
      let text = "";
      for (const row of this.rows.subarray(first, first + CSV_SLICE)) {
        text += `${this.all.map((column) => csvCell(column.value(row))).join(",")}\n`;
      }
      parts.push(text);
      await breathe();
    }
    return parts;
  }
}

/** Returns a key whose middle narrow cells leave out, since the index of a chunk is at its end. */
function elided(text) {
  const at = text.endsWith(")") ? Math.max(text.indexOf(", "), text.length - 24) : text.length - 8;
  const parts = [text.slice(0, Math.max(at, 0)), text.slice(Math.max(at, 0))];
  return make("span", { class: "elided" }, ...parts.map((part) => make("span", {}, part)));
}

function sortedRows(column, count) {
  if (column.order) return column.order();
  const rows = Uint32Array.from({ length: count }, (_, row) => row);
  const values = Array.from(rows, column.value);
  const missing = (value) => value === null || Number.isNaN(value);
  const compare = column.numeric
    ? (one, other) => one - other
    : new Intl.Collator("en", { numeric: true }).compare;
  return rows.sort((one, other) => {
    const unknown = Number(missing(values[other])) - Number(missing(values[one]));
    return unknown || (missing(values[one]) ? 0 : compare(values[one], values[other]));
  });
}
