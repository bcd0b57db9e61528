// What a function or step of two sides is called, and how long each ran in a run.

export const SIDES = ["before", "after"];

export class Names {
  /** `renamed`: the name before of each name after that is another one. */
  constructor(renamed = {}) {
    this.before = new Map(Object.entries(renamed));
    this.after = new Map(Object.entries(renamed).map(([name, old]) => [old, name]));
  }

  /** The name of a side as the tables of both have it. */
  label(side, name) {
    const [old, now] = side === "before" ? [name, this.after.get(name)] : [this.before.get(name), name];
    return old !== undefined && now !== undefined ? `${old} → ${now}` : name;
  }
}

/** The place of each name in the list of a run's names by what both sides call it. */
export function placesByLabel(names, side, list) {
  return new Map(list.map((name, place) => [names.label(side, name), place]));
}

/** What ran of each function, by its label: `seconds` of each task run that ended in memory. */
export function secondsByLabel(names, side, tasks) {
  const found = new Map();
  for (let row = 0; row < tasks.count; row += 1) {
    if (tasks.stateName(row) !== "memory") continue;
    const code = tasks.functionOf(row);
    if (!found.has(code)) found.set(code, []);
    found.get(code).push(tasks.durations[row]);
  }
  return new Map(
    [...found].map(([code, seconds]) => [names.label(side, tasks.facts.functions[code]), seconds]),
  );
}
