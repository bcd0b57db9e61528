// The positions of the boxes of a computation, in levels. Sources are above the boxes that use their results.

import { sumOf } from "../numbers.js";
import { depthsOf, ordered } from "./boxes.js";

const SWEEPS = 8;

/**
 * Returns the positions of boxes, and the points of the links between them.
 *
 * @returns {{boxes: {box: any, x: number, level: number}[], links: {link: any, points: number[][]}[], width: number,
 *   levels: number}} `x` is the middle of a box, and points are pairs of x and level.
 */
export function layOut(boxes, links, { wide, gap, slim }) {
  const graph = ordered(boxes.map((_, at) => at), links.map((link) => ({
    link,
    from: boxes.indexOf(link.from),
    to: boxes.indexOf(link.to),
  })));
  const level = levelsFrom(graph);
  const levels = Math.max(0, ...level.values()) + 1;
  const items = boxes.map((box, at) => ({ box, level: level.get(at), x: 0, width: wide, above: [], below: [] }));
  const routes = graph.edges.map(({ from, to, link }) => {
    const through = [items[from]];
    for (let between = items[from].level + 1; between < items[to].level; between += 1) {
      through.push({ box: null, level: between, x: 0, width: slim, above: [], below: [] });
    }
    through.push(items[to]);
    for (const [at, item] of through.slice(1).entries()) {
      item.above.push(through[at]);
      through[at].below.push(item);
    }
    return { link, through };
  });
  const all = [...items, ...routes.flatMap(({ through }) => through.slice(1, -1))];
  const rows = Array.from({ length: levels }, (_, at) => all.filter((item) => item.level === at));
  arrange(rows, gap);
  // The points between two boxes are above each other.
  for (const points of routes.map(({ through }) => through.slice(1, -1)))
    for (const point of points) point.wanted = middle(points);
  for (const row of rows) seat(row, row.map(({ wanted, x }) => wanted ?? x), gap);
  const left = Math.min(0, ...all.map(({ x, width }) => x - width / 2));
  for (const item of all) item.x -= left;
  return {
    boxes: items.map(({ box, x, level: at }) => ({ box, x, level: at })),
    links: routes.map(({ link, through }) => ({ link, points: pointsOf(through, gap) })),
    width: Math.max(0, ...all.map(({ x, width }) => x + width / 2)),
    levels,
  };
}

/** Returns the points of a link. The links of a box are next to each other, in the order of their targets. */
function pointsOf(through, gap) {
  const points = through.map(({ x, level }) => [x, level]);
  points[0][0] += portOf(through[0], through[0].below, through[1], gap);
  points.at(-1)[0] += portOf(through.at(-1), through.at(-1).above, through.at(-2), gap);
  return points;
}

function portOf({ width }, neighbours, neighbour, gap) {
  const inOrder = [...neighbours].sort((one, other) => one.x - other.x);
  const apart = Math.min(3 * gap, (width - 2 * gap) / neighbours.length);
  return (inOrder.indexOf(neighbour) - (neighbours.length - 1) / 2) * apart;
}

/** Returns the level of each index: its depth, or the level above the first box that uses its result. */
function levelsFrom({ places, edges }) {
  const level = depthsOf({ places, edges });
  const after = Map.groupBy(edges, ({ from }) => from);
  for (const at of [...places].reverse()) {
    const takers = (after.get(at) ?? []).map(({ to }) => level.get(to) - 1);
    if (takers.length) level.set(at, Math.min(...takers));
  }
  return level;
}

/** Orders the rows so that few links cross, and moves linked items above each other. */
function arrange(rows, gap) {
  for (const row of rows) seat(row, row.map((_, at) => at), gap);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const wanted = row.map((item) => middle(down ? item.above : item.below) ?? item.x);
      const order = [...row.keys()].sort((one, other) => wanted[one] - wanted[other]);
      const sorted = order.map((at) => row[at]);
      row.splice(0, row.length, ...sorted);
      seat(row, order.map((at) => wanted[at]), gap);
    }
  }
  for (const row of rows) {
    seat(row, row.map((item) => middle([...item.above, ...item.below]) ?? item.x), gap);
  }
}

function middle(items) {
  return items.length ? sumOf(items.map(({ x }) => x)) / items.length : null;
}

/** Moves the items of a row as near to the wanted positions as their widths and order allow. */
function seat(row, wanted, gap) {
  const offsets = [];
  let offset = 0;
  for (const [at, { width }] of row.entries()) {
    if (at) offset += row[at - 1].width / 2 + gap + width / 2;
    offsets.push(offset);
  }
  // Neighbours that would overlap form a cluster at the mean of their wanted positions.
  const clusters = [];
  for (const [at, place] of wanted.entries()) {
    clusters.push({ sum: place - offsets[at], count: 1 });
    while (clusters.length > 1) {
      const [one, other] = clusters.slice(-2);
      if (one.sum / one.count <= other.sum / other.count) break;
      clusters.splice(-2, 2, { sum: one.sum + other.sum, count: one.count + other.count });
    }
  }
  const bases = clusters.flatMap(({ sum, count }) => Array(count).fill(sum / count));
  for (const [at, item] of row.entries()) item.x = bases[at] + offsets[at];
}
