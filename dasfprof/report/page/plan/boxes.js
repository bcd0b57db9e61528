// Pure functions that combine the nodes of a plan into a readable number of boxes.

import { rowsOf } from "../data.js";
import { sumOf } from "../numbers.js";

const LEVELS = ["node", "line", "step", "function"];
/** Maximum number of boxes of a readable picture. */
const READABLE = 36;
/** Maximum number of boxes in a row of a readable picture. */
const MOST_BESIDE = 4;
/** Maximum number of equivalent nodes that are separate boxes. */
const MOST_ALIKE = 3;
/** Maximum number of groups that are checked for merging. */
const MOST_GROUPS = 1200;

/**
 * Returns the nodes and edges of a plan from its two tables.
 *
 * @returns {{nodes: any[], edges: any[]}} Edges have the indices of their nodes.
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

/** Returns the groupings of nodes that are possible. The first does not combine nodes. */
export function levelsOf({ nodes }) {
  const some = (name) => nodes.some((node) => node[name]);
  return LEVELS.filter((name) => !["line", "step"].includes(name) || some(name));
}

/** Returns the most detailed grouping with a readable picture, or the one with the smallest number of boxes. */
export function usualLevel(plan) {
  const levels = levelsOf(plan);
  const blocks = levels.map((level) => blocksOf(plan, level));
  const counts = blocks.map((ofLevel) => sumOf(ofLevel.map(({ boxes }) => boxes.length)));
  const isNarrow = (block) => widthOf(block) <= MOST_BESIDE;
  const fits = blocks.findIndex((ofLevel, at) => counts[at] <= READABLE && ofLevel.every(isNarrow));
  if (fits >= 0) return levels[fits];
  const readable = counts.findIndex((count) => count <= READABLE);
  return levels[readable < 0 ? counts.indexOf(Math.min(...counts)) : readable];
}

/** Returns the maximum number of boxes in a row of a block. */
function widthOf({ boxes, links }) {
  const within = links.filter(({ from }) => boxes.includes(from));
  const edges = within.map(({ from, to }) => ({ from: boxes.indexOf(from), to: boxes.indexOf(to) }));
  const depths = [...depthsOf(ordered([...boxes.keys()], edges)).values()];
  return Math.max(0, ...[...Map.groupBy(depths, (depth) => depth).values()].map((row) => row.length));
}

/** Returns the depth of each index: the length of the longest path to it. */
export function depthsOf({ places, edges }) {
  const before = Map.groupBy(edges, ({ to }) => to);
  const depth = new Map();
  for (const at of places) {
    depth.set(at, Math.max(0, ...(before.get(at) ?? []).map(({ from }) => depth.get(from) + 1)));
  }
  return depth;
}

/**
 * Returns the computations of a plan as blocks of boxes and links. Computations with the same structure are one block.
 *
 * Nodes of a line, step or function are one box, unless a path leads from it back to it through another box.
 */
export function blocksOf({ nodes, edges }, level) {
  const boxOf = new Map();
  const blocks = [...Map.groupBy(nodes, ({ computation }) => computation).values()].map((members) => {
    const { computation } = members[0];
    const isWithin = ({ from, to }) => [from, to].every((at) => nodes[at].computation === computation);
    const boxes = gathered(members, edges.filter(isWithin), level).map(boxFrom);
    for (const box of boxes) for (const { at } of box.nodes) boxOf.set(at, box);
    return { boxes, links: [], computations: [computation] };
  });
  const takers = Map.groupBy(edges, ({ to }) => nodes[to].computation);
  for (const block of blocks) {
    const incoming = takers.get(block.computations[0]) ?? [];
    block.links = linksOf(incoming.map((edge) => [boxOf.get(edge.from), boxOf.get(edge.to), edge]));
  }
  return alikeAsOne(blocks);
}

/** Returns links between boxes, each the sum of the edges between two boxes. */
function linksOf(edges) {
  const links = [];
  for (const [source, boxEdges] of Map.groupBy(edges, ([from]) => from)) {
    for (const [target, pairEdges] of Map.groupBy(boxEdges, ([, to]) => to)) {
      const sum = (name) => sumOf(pairEdges.map(([, , edge]) => edge[name]));
      if (source !== target) {
        links.push({ from: source, to: target, size: sum("size"), tasks: sum("tasks"), path: sum("path") });
      }
    }
  }
  return links;
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

/** Returns groups of the nodes of a computation, without cycles of edges between groups. */
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

/** Returns each node as a group, but nodes of a function and line with equivalent edges as one group. */
function withoutFans(nodes, inOrder) {
  const depths = depthsOf(inOrder);
  const labels = new Map(nodes.map((node) => [node.at, JSON.stringify([node.function, node.line, node.step])]));
  const beside = (by, other) => {
    const groups = Map.groupBy(inOrder.edges, (edge) => edge[by]);
    const names = (at) => (groups.get(at) ?? []).map((edge) => `${depths.get(edge[other])} ${labels.get(edge[other])}`);
    return (at) => [...new Set(names(at))].sort();
  };
  const [sources, takers] = [beside("to", "from"), beside("from", "to")];
  const keyOf = ({ at }) => JSON.stringify([labels.get(at), depths.get(at), sources(at), takers(at)]);
  const alike = [...Map.groupBy(nodes, keyOf).values()];
  return alike.flatMap((members) => (members.length > MOST_ALIKE ? [members] : members.map((node) => [node])));
}

/** Merges groups of a key if no path leads from one to the other through a third. */
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
      const isCycle = (group) => leads(after, group, other) || leads(after, other, group);
      const into = alike.slice(0, place).find((group) => group.length && !isCycle(group));
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

/** Returns whether a path leads from one group to another through a third. */
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

/** Returns indices in topological order, and the edges without those that close a cycle. */
export function ordered(places, edges) {
  const after = Map.groupBy(edges, ({ from }) => from);
  const [state, done, acyclic] = [new Map(), [], []];
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
        acyclic.push(edge);
        if (!state.has(edge.to)) {
          state.set(edge.to, "open");
          waiting.push({ at: edge.to, next: 0 });
        }
      }
    }
  }
  return { places: done.reverse(), edges: acyclic };
}

/** Combines blocks with the same boxes and links into one. */
function alikeAsOne(blocks) {
  const label = ({ functions, lines, steps }) => JSON.stringify([functions, lines, steps]);
  const byShape = Map.groupBy(blocks, ({ boxes, links }) => JSON.stringify([
    boxes.map(label),
    links.map(({ from, to }) => [label(from), label(to)]).sort(),
  ]));
  const first = new Map();
  const combined = [...byShape.values()].map((alike) => {
    const boxes = alike[0].boxes.map((_, at) => boxFrom(alike.flatMap((block) => block.boxes[at].nodes)));
    for (const block of alike) for (const [at, box] of block.boxes.entries()) first.set(box, boxes[at]);
    const all = (name) => alike.flatMap((block) => block[name]);
    return { boxes, links: all("links"), computations: all("computations") };
  });
  for (const block of combined) {
    block.links = linksOf(block.links.map((link) => [first.get(link.from), first.get(link.to), link]));
  }
  return combined;
}
