// The sampled calls of both sides as one flame graph: as wide as they took, coloured by how much
// that differs.

const FLAME_HEIGHT = 22;
/** Narrower calls, as a share of the graph, have no place in it. */
const LEAST_WIDTH = 0.002;

class Flame {
  /** `rows` of `RunComparison.call_tree`: each call followed by those that it makes. */
  constructor(root, rows) {
    this.root = root;
    this.calls = treeOf(rows);
    this.most = Math.max(...rows.map((row) => Math.abs(row["Difference (s)"])), 1e-9);
    this.side = "after";
    this.zoomed = null;
    this.draw();
  }

  widthBy(side) {
    this.side = side;
    this.draw();
  }

  secondsOf(call) {
    return call.row[this.side === "before" ? "Before (s)" : "After (s)"];
  }

  draw() {
    const elements = [];
    let deepest = 0;
    const add = (call, left, width, depth) => {
      if (width < LEAST_WIDTH) return;
      deepest = Math.max(deepest, depth);
      elements.push(this.element(call, left, width, depth));
      const own = this.secondsOf(call);
      for (const inner of call.calls) {
        const share = own > 0 ? (this.secondsOf(inner) / own) * width : 0;
        add(inner, left, share, depth + 1);
        left += share;
      }
    };
    const roots = this.zoomed ? [this.zoomed] : this.calls;
    const whole = sumOf(roots.map((call) => this.secondsOf(call)));
    let left = 0;
    for (const call of roots) {
      const share = whole > 0 ? this.secondsOf(call) / whole : 0;
      add(call, left, share, 0);
      left += share;
    }
    this.root.style.height = `${(deepest + 1) * FLAME_HEIGHT}px`;
    this.root.replaceChildren(...elements);
  }

  element(call, left, width, depth) {
    const { Code: code, File: file, "Before (s)": before, "After (s)": after } = call.row;
    const difference = call.row["Difference (s)"];
    const sign = difference > 0 ? "+" : "";
    const title = `${code} (${file}): ${formatSeconds(before)} → ${formatSeconds(after)}, ${sign}${formatSeconds(difference)}`;
    const zoom = () => {
      this.zoomed = this.zoomed === call ? null : call;
      this.draw();
    };
    const element = make("button", { type: "button", title: visible(title), onclick: zoom }, shortened(code, 80));
    const strength = Math.round((Math.abs(difference) / this.most) * 70);
    const colour = difference > 0 ? "var(--series-5)" : "var(--series-0)";
    element.style.background = `color-mix(in srgb, ${colour} ${strength}%, var(--band))`;
    element.style.left = `${left * 100}%`;
    element.style.width = `${width * 100}%`;
    element.style.top = `${depth * FLAME_HEIGHT}px`;
    return element;
  }
}

function treeOf(rows) {
  const roots = [];
  const way = [];
  for (const row of rows) {
    const call = { row, calls: [] };
    (row.Depth ? way[row.Depth - 1].calls : roots).push(call);
    way[row.Depth] = call;
  }
  return roots;
}
