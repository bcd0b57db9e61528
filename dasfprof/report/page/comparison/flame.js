// A flame graph of both sides. Widths are the times of one side, and colours show the difference.

import { FlameGraph, treeOf } from "../flame/graph.js";
import { formatSeconds } from "../format.js";

export class DifferenceFlame {
  /** `rows` of `RunComparison.call_tree`, in depth-first order. */
  constructor(root, rows) {
    this.rows = rows;
    this.largest = Math.max(...rows.map((row) => Math.abs(row["Difference (s)"])), 1e-9);
    this.side = "after";
    this.graph = new FlameGraph(root, {
      calls: treeOf(rows.map((row) => row.Depth)),
      seconds: ({ at }) => rows[at][this.side === "before" ? "Before (s)" : "After (s)"],
      name: ({ at }) => rows[at].Code,
      title: ({ at }) => titleOfBoth(rows[at]),
      dress: (element, { at }) => this.dress(element, rows[at]["Difference (s)"]),
    });
  }

  widthBy(side) {
    this.side = side;
    this.graph.draw();
  }

  dress(element, difference) {
    const strength = Math.round((Math.abs(difference) / this.largest) * 70);
    const colour = difference > 0 ? "var(--series-5)" : "var(--series-0)";
    element.style.background = `color-mix(in srgb, ${colour} ${strength}%, var(--band))`;
  }
}

function titleOfBoth(row) {
  const { Code: code, File: file, "Before (s)": before, "After (s)": after } = row;
  const difference = row["Difference (s)"];
  const sign = difference > 0 ? "+" : "";
  return `${code} (${file}): ${formatSeconds(before)} → ${formatSeconds(after)}, ${sign}${formatSeconds(difference)}`;
}
