// The boxes of a plan, and their positions.

import assert from "node:assert/strict";
import test from "node:test";

import { blocksOf, levelsOf, ordered, planOf, usualLevel } from "../../dasfprof/report/page/plan/boxes.js";
import { layOut } from "../../dasfprof/report/page/plan/layout.js";
import { drawn } from "./random.js";

const SIZES = { wide: 100, gap: 10, slim: 4 };

function table(rows) {
  const labels = Object.keys(rows[0] ?? {});
  return { columns: labels.map((label) => ({ label, values: rows.map((row) => row[label]) })) };
}

/** Returns a plan of nodes `[function, line, step, computation]` of one second each, and edges by index. */
function planned(nodes, pairs) {
  const rows = nodes.map(([name, line, step = null, computation = 1], at) => ({
    ...{ Node: `${at + 1} ${name}`, Function: name, Line: line, Text: `text of ${line}`, Step: step },
    ...{ Computation: computation, Tasks: 2, "Thread Time (s)": 1, "Computing (s)": 1, "Critical Path (s)": 0 },
    ...{ Failed: 0, Again: 0, Unfinished: 0, "Output (MB)": 1 },
  }));
  const edges = pairs.map(([from, to]) => ({
    ...{ From: rows[from].Node, To: rows[to].Node, "Size (MB)": 2, Tasks: 2, "On Path": 1 },
  }));
  return planOf(table(rows), table(edges), [{ name: "Computing" }]);
}

test("nodes of a line are one box, unless that would close a circle", () => {
  // The selection of line 3 was pushed before the filter of line 2.
  const plan = planned(
    [["read", "a:1"], ["getitem", "a:3"], ["gt", "a:2"], ["getitem", "a:2"], ["sum", "a:3"], ["max", "a:3"]],
    [[0, 1], [1, 2], [1, 3], [2, 3], [3, 4], [3, 5]],
  );
  const [{ boxes, links }] = blocksOf(plan, "line");
  assert.deepEqual(boxes.map(({ functions }) => functions), [["read"], ["getitem"], ["gt", "getitem"], ["sum", "max"]]);
  assert.deepEqual(links.map(({ from, to, size }) => [boxes.indexOf(from), boxes.indexOf(to), size]),
    [[0, 1, 2e6], [1, 2, 4e6], [2, 3, 4e6]]);
  assert.equal(boxes[2].seconds, 2);
  assert.equal(blocksOf(plan, "node")[0].boxes.length, 6);
});

/** Returns twelve parallel layers of a line with a common input and one dependent each. */
function fan(lineOf) {
  const each = Array.from({ length: 12 }, (_, at) => at);
  const both = ["split", "mean"].flatMap((name) => each.map((at) => [name, lineOf(at)]));
  const pairs = [...each.map((at) => [0, 1 + at]), ...each.map((at) => [1 + at, 13 + at])];
  return planned([["load", "a:1"], ...both, ["concat", "a:3"]], [...pairs, ...each.map((at) => [13 + at, 25])]);
}

test("layers that are alike and beside each other are one box, few of them are not", () => {
  const [{ boxes, links }] = blocksOf(fan(() => "a:2"), "node");
  assert.deepEqual(boxes.map(({ functions, nodes }) => [functions[0], nodes.length]),
    [["load", 1], ["split", 12], ["mean", 12], ["concat", 1]]);
  assert.deepEqual(links.map(({ size }) => size), [24e6, 24e6, 24e6]);
  const few = planned([["load", "a:1"], ["f", "a:2"], ["f", "a:2"], ["f", "a:2"]], [[0, 1], [0, 2], [0, 3]]);
  assert.equal(blocksOf(few, "node")[0].boxes.length, 4);
});

test("a plan is shown by what keeps it from being wide", () => {
  const plan = fan((at) => `a:${at}`);
  assert.equal(blocksOf(plan, "node")[0].boxes.length, 26);
  assert.equal(usualLevel(plan), "function");
  assert.equal(usualLevel(fan(() => "a:2")), "node");
});

test("a line that cannot be told is no line, and steps are there where there are any", () => {
  assert.deepEqual(levelsOf(planned([["a", "(why)"]], [])), ["node", "function"]);
  assert.deepEqual(levelsOf(planned([["a", "a:1", "load"]], [])), ["node", "line", "step", "function"]);
});

test("computations that are alike are one block, and what they take of others stays linked", () => {
  const again = [1, 2, 3].map((computation) => ["sum", "a:2", null, computation + 1]);
  const blocks = blocksOf(planned([["load", "a:1"], ...again], [[0, 1], [0, 2], [0, 3]]), "node");
  assert.deepEqual(blocks.map(({ computations }) => computations), [[1], [2, 3, 4]]);
  assert.equal(blocks[1].boxes[0].tasks, 6);
  assert.equal(blocks[1].links[0].from, blocks[0].boxes[0]);
  assert.equal(blocks[1].links[0].size, 6e6);
});

test("a thousand nodes are put together by step", () => {
  const steps = ["load", "clean", "fit"];
  const nodes = Array.from({ length: 1000 }, (_, at) => [`f${at}`, `a:${at}`, steps[Math.floor(at / 334)]]);
  const plan = planned(nodes, nodes.slice(1).map((_, at) => [at, at + 1]));
  assert.equal(usualLevel(plan), "step");
  assert.deepEqual(blocksOf(plan, "step")[0].boxes.map((box) => box.steps), steps.map((step) => [step]));
});

test("no box overlaps another, and links lead down", () => {
  for (let turn = 0; turn < 20; turn += 1) {
    const count = 3 + turn;
    const numbers = drawn(4 * count);
    const boxes = Array.from({ length: count }, (_, at) => ({ at }));
    const links = Array.from({ length: 2 * count }, (_, at) => ({
      from: boxes[Math.floor(numbers[2 * at] * count)],
      to: boxes[Math.floor(numbers[2 * at + 1] * count)],
    })).filter(({ from, to }) => from !== to);
    const found = layOut(boxes, links, SIZES);
    assert.equal(found.boxes.length, count);
    for (const one of found.boxes) {
      assert.ok(one.x >= SIZES.wide / 2 - 1e-6 && one.x <= found.width);
      for (const other of found.boxes) {
        if (one === other || one.level !== other.level) continue;
        assert.ok(Math.abs(one.x - other.x) >= SIZES.wide + SIZES.gap - 1e-6);
      }
    }
    for (const { points } of found.links) {
      for (const [at, [, level]] of points.slice(1).entries()) assert.equal(level, points[at][1] + 1);
    }
  }
});

test("edges that close a circle are left out of the order", () => {
  const edges = [[0, 1], [1, 2], [2, 0], [2, 3]].map(([from, to]) => ({ from, to }));
  const { places, edges: kept } = ordered([0, 1, 2, 3], edges);
  assert.deepEqual(places, [0, 1, 2, 3]);
  assert.deepEqual(kept.map(({ from, to }) => [from, to]).sort(), [[0, 1], [1, 2], [2, 3]]);
});
