// The nodes of a plan put together to as many boxes as a person can read: pure functions.

import { rowsOf } from "../data.js";
import { sumOf } from "../numbers.js";

const LEVELS = ["node", "line", "step", "function"];
/** A picture of more boxes than this is put together further. */
const READABLE = 36;
/** So is one with more beside each other. */
const MOST_BESIDE = 4;
/** Of nodes that differ in nothing but their place beside each other, more than these are one box. */
const MOST_ALIKE = 3;
/** Of more groups than this nobody asks which can be put together. */
const MOST_GROUPS = 1200;

/**
 * The nodes and edges of a plan, of its two tables.
 *
 * @returns {{nodes: any[], edges: any[]}} Edges have the places of their nodes.
 */
export function planOf(table, edgeTable, classes) {
  const nodes = rowsOf(table).map((row, at) => ({
    at,
    name: row.Node,
    function: row.Function,
    line: row.Line.startsWith("(") ? "" : row.Line,
    text: row.Text ?? "",
    step: row.Step ?? "",
    computation: row.Computation,
    tasks: row.Tasks,
    seconds: row["Thread Time (s)"],
    spent: classes.map(({ name }) => row[`${name} (s)`] ?? 0),
    path: row["Critical Path (s)"],
    failed: row.Failed,
    again: row.Again,
    unfinished: row.Unfinished,
    output: row["Output (MB)"] * 1e6,
  }));
  const placeOf = new Map(nodes.map(({ name, at }) => [name, at]));
  const edges = rowsOf(edgeTable).map((row) => ({
    from: placeOf.get(row.From),
    to: placeOf.get(row.To),
    size: row["Size (MB)"] === null ? NaN : row["Size (MB)"] * 1e6,
    tasks: row.Tasks,
    path: row["On Path"],
  }));
  return { nodes, edges: edges.filter(({ from, to }) => from !== to) };
}

/** By what the nodes of a plan can be put together; the first is by nothing. */
export function levelsOf({ nodes }) {
  const some = (name) => nodes.some((node) => node[name]);
  return LEVELS.filter((name) => !["line", "step"].includes(name) || some(name));
}

/** The level at which a person can read a plan, as far as there is one. */
export function usualLevel(plan) {
  const levels = levelsOf(plan);
  const blocks = levels.map((level) => blocksOf(plan, level));
  const counts = blocks.map((own) => sumOf(own.map(({ boxes }) => boxes.length)));
  const fits = blocks.findIndex((own, at) => counts[at] <= READABLE && own.every((one) => widthOf(one) <= MOST_BESIDE));
  if (fits >= 0) return levels[fits];
  const readable = counts.findIndex((count) => count <= READABLE);
  return levels[readable < 0 ? counts.indexOf(Math.min(...counts)) : readable];
}

/** How many boxes of a block stand beside each other at most. */
function widthOf({ boxes, links }) {
  const within = links.filter(({ from }) => boxes.includes(from));
  const edges = within.map(({ from, to }) => ({ from: boxes.indexOf(from), to: boxes.indexOf(to) }));
  const depths = [...depthsOf(ordered([...boxes.keys()], edges)).values()];
  return Math.max(0, ...[...Map.groupBy(depths, (depth) => depth).values()].map((row) => row.length));
}

/** How deep each place is: as the longest way to it. */
export function depthsOf({ places, edges }) {
  const before = Map.groupBy(edges, ({ to }) => to);
  const depth = new Map();
  for (const at of places) {
    depth.set(at, Math.max(0, ...(before.get(at) ?? []).map(({ from }) => depth.get(from) + 1)));
  }
  return depth;
}

/**
 * The computations of a plan as boxes and links between them; those that are alike are one block.
 *
 * Nodes of a line, step or function are one box, unless what it hands on comes back to it by way of others.
 */
export function blocksOf({ nodes, edges }, level) {
  const boxOf = new Map();
  const blocks = [...Map.groupBy(nodes, ({ computation }) => computation).values()].map((own) => {
    const within = edges.filter(({ from, to }) => nodes[from].computation === own[0].computation
      && nodes[to].computation === own[0].computation);
    const boxes = gathered(own, within, level).map(boxFrom);
    for (const box of boxes) for (const { at } of box.nodes) boxOf.set(at, box);
    return { boxes, links: [], computations: [own[0].computation] };
  });
  const takers = Map.groupBy(edges, ({ to }) => nodes[to].computation);
  for (const block of blocks) {
    const own = takers.get(block.computations[0]) ?? [];
    block.links = linksOf(own.map((edge) => [boxOf.get(edge.from), boxOf.get(edge.to), edge]));
  }
  return alikeAsOne(blocks);
}

/** Links between boxes, of edges between them: a sum for each pair. */
function linksOf(edges) {
  const found = new Map();
  for (const [from, to, edge] of edges) {
    if (from === to) continue;
    if (!found.has(from)) found.set(from, new Map());
    const own = found.get(from);
    if (!own.has(to)) own.set(to, { from, to, size: 0, tasks: 0, path: 0 });
    for (const name of ["size", "tasks", "path"]) own.get(to)[name] += edge[name];
  }
  return [...found.values()].flatMap((own) => [...own.values()]);
}

function boxFrom(nodes) {
  const sum = (name) => sumOf(nodes.map((node) => node[name]));
  const distinct = (name) => [...new Set(nodes.map((node) => node[name]).filter(Boolean))];
  const figures = ["tasks", "seconds", "path", "failed", "again", "unfinished"].map((name) => [name, sum(name)]);
  return {
    nodes,
    functions: distinct("function"),
    lines: distinct("line"),
    texts: distinct("text"),
    steps: distinct("step"),
    spent: nodes[0].spent.map((_, at) => sumOf(nodes.map(({ spent }) => spent[at]))),
    ...Object.fromEntries(figures),
  };
}

/** Nodes of a computation in groups, which have no circle of edges among them. */
function gathered(nodes, edges, level) {
  const inOrder = ordered(nodes.map(({ at }) => at), edges);
  if (level === "node") return withoutFans(nodes, inOrder);
  const keyOf = new Map(nodes.map((node) => [node.at, node[level] || node.line || node.function]));
  const before = Map.groupBy(inOrder.edges, ({ to }) => to);
  const rank = new Map();
  for (const at of inOrder.places) {
    const ranks = (before.get(at) ?? []).map(({ from }) => rank.get(from) + Number(keyOf.get(from) !== keyOf.get(at)));
    rank.set(at, Math.max(0, ...ranks));
  }
  const groups = [...Map.groupBy(nodes, ({ at }) => JSON.stringify([keyOf.get(at), rank.get(at)])).values()];
  return merged(groups, inOrder.edges, ([{ at }]) => keyOf.get(at));
}

/** Each node as a group; those of a function and line at one depth that take and hand on alike are one. */
function withoutFans(nodes, inOrder) {
  const depths = depthsOf(inOrder);
  const told = new Map(nodes.map((node) => [node.at, JSON.stringify([node.function, node.line, node.step])]));
  const beside = (by, other) => {
    const groups = Map.groupBy(inOrder.edges, (edge) => edge[by]);
    const names = (at) => (groups.get(at) ?? []).map((edge) => `${depths.get(edge[other])} ${told.get(edge[other])}`);
    return (at) => [...new Set(names(at))].sort();
  };
  const [sources, takers] = [beside("to", "from"), beside("from", "to")];
  const keyOf = ({ at }) => JSON.stringify([told.get(at), depths.get(at), sources(at), takers(at)]);
  const alike = [...Map.groupBy(nodes, keyOf).values()];
  return alike.flatMap((own) => (own.length > MOST_ALIKE ? [own] : own.map((node) => [node])));
}

/** Puts groups of a key together where no way leads from one to the other through a third. */
function merged(groups, edges, keyOf) {
  const groupOf = new Map(groups.flatMap((group) => group.map(({ at }) => [at, group])));
  const after = new Map(groups.map((group) => [group, new Set()]));
  for (const { from, to } of edges) {
    if (groupOf.get(from) !== groupOf.get(to)) after.get(groupOf.get(from)).add(groupOf.get(to));
  }
  if (groups.length > MOST_GROUPS) return groups;
  for (const alike of Map.groupBy(groups, keyOf).values()) {
    for (let place = 1; place < alike.length; place += 1) {
      const other = alike[place];
      const circles = (one) => leads(after, one, other) || leads(after, other, one);
      const into = alike.slice(0, place).find((one) => one.length && !circles(one));
      if (!into) continue;
      into.push(...other.splice(0));
      for (const next of after.get(other)) after.get(into).add(next);
      for (const nexts of after.values()) if (nexts.delete(other)) nexts.add(into);
      after.get(into).delete(into);
      after.delete(other);
    }
  }
  return groups.filter((group) => group.length);
}

/** Whether a way leads from one group to another through a third. */
function leads(after, from, to) {
  const waiting = [...after.get(from)].filter((next) => next !== to);
  const seen = new Set(waiting);
  while (waiting.length) {
    for (const next of after.get(waiting.pop())) {
      if (next === to) return true;
      if (!seen.has(next)) waiting.push(next);
      seen.add(next);
    }
  }
  return false;
}

/** Places in an order in which what hands on comes first, and the edges without those that close a circle. */
export function ordered(places, edges) {
  const after = Map.groupBy(edges, ({ from }) => from);
  const [state, done, kept] = [new Map(), [], []];
  for (const first of places) {
    const waiting = state.has(first) ? [] : [{ at: first, next: 0 }];
    if (waiting.length) state.set(first, "open");
    while (waiting.length) {
      const top = waiting.at(-1);
      const edge = (after.get(top.at) ?? [])[top.next++];
      if (!edge) {
        state.set(waiting.pop().at, "done");
        done.push(top.at);
      } else if (state.get(edge.to) !== "open") {
        kept.push(edge);
        if (!state.has(edge.to)) {
          state.set(edge.to, "open");
          waiting.push({ at: edge.to, next: 0 });
        }
      }
    }
  }
  return { places: done.reverse(), edges: kept };
}

/** Blocks with the same boxes and links, in whatever order they ran, become one. */
function alikeAsOne(blocks) {
  const told = ({ functions, lines, steps }) => JSON.stringify([functions, lines, steps]);
  const byShape = Map.groupBy(blocks, ({ boxes, links }) => JSON.stringify([
    boxes.map(told),
    links.map(({ from, to }) => [told(from), told(to)]).sort(),
  ]));
  const first = new Map();
  const found = [...byShape.values()].map((alike) => {
    const boxes = alike[0].boxes.map((_, at) => boxFrom(alike.flatMap((block) => block.boxes[at].nodes)));
    for (const block of alike) for (const [at, box] of block.boxes.entries()) first.set(box, boxes[at]);
    const all = (name) => alike.flatMap((block) => block[name]);
    return { boxes, links: all("links"), computations: all("computations") };
  });
  for (const block of found) {
    block.links = linksOf(block.links.map((link) => [first.get(link.from), first.get(link.to), link]));
  }
  return found;
}
