// Tables on paper: their first rows, and as many of their columns as a page is wide.

import { findAll, make } from "../dom.js";
import { counted, shortened, visible } from "../format.js";
import { allTables } from "./table.js";

const PRINTED_ROWS = 12;
/** The width of an A4 page within its margins, in em of the printed tables. */
const PRINTED_WIDTH = 62;

/** The first rows of a table as they are sorted and filtered, and what is left out. */
function printedTable(table) {
  const shown = [];
  let width = 0;
  for (const column of table.columns) {
    width += column.width;
    if (shown.length && width > PRINTED_WIDTH) break;
    shown.push(column);
  }
  const kind = ({ numeric }) => ({ class: numeric ? "number" : "" });
  const rows = Array.from(table.rows.slice(0, PRINTED_ROWS));
  const line = (row) => {
    const cells = shown.map((column) => {
      const text = column.cell ? column.cell(row) : shortened(column.text(row), 60);
      return make("td", kind(column), text);
    });
    return make("tr", {}, ...cells);
  };
  const whole = shown.reduce((sum, column) => sum + column.width, 0);
  const heads = shown.map((column) => {
    const head = make("th", kind(column), visible(column.label));
    head.style.width = `${(column.width / whole) * 100}%`;
    return head;
  });
  const left = table.columns.slice(shown.length).map(({ label }) => label);
  const told = [
    ...(rows.length < table.rows.length ? [`First ${rows.length} of ${counted(table.rows.length, "row")}.`] : []),
    ...(left.length ? [`Too wide for paper: ${left.join(", ")}.`] : []),
  ];
  return make(
    "div",
    { class: "printed" },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(line))),
    make("p", {}, visible(told.join(" "))),
  );
}

/** Puts all tables on paper, unfolds what is folded, and has `paint` paint in light colours. */
export function preparePrint(paint) {
  const { dataset } = document.documentElement;
  let folded = [];
  addEventListener("beforeprint", () => {
    dataset.paper = "";
    folded = [...findAll("details.lesser:not([open])")];
    for (const details of folded) details.open = true;
    for (const table of allTables) table.root.append(printedTable(table));
    paint();
  });
  addEventListener("afterprint", () => {
    delete dataset.paper;
    for (const details of folded) details.open = false;
    for (const printed of findAll(".printed")) printed.remove();
    paint();
  });
}
