// Names of functions and steps of two sides, and durations by name.

export const SIDES = ["before", "after"];

export class Names {
  /** `renamed` has the name before by the name after, if they differ. */
  constructor(renamed = {}) {
    this.before = new Map(Object.entries(renamed));
    this.after = new Map(Object.entries(renamed).map(([name, old]) => [old, name]));
  }

  /** Returns the name of a function or step in the tables of both sides. */
  label(side, name) {
    const [old, now] = side === "before" ? [name, this.after.get(name)] : [this.before.get(name), name];
    return old !== undefined && now !== undefined ? `${old} → ${now}` : name;
  }
}

/** Returns the seconds of the successful task runs of each function, by its name in the tables of both sides. */
export function secondsByLabel(names, side, tasks) {
  const succeeded = [...tasks.rows].filter((row) => tasks.stateName(row) === "memory");
  const byLabel = Map.groupBy(succeeded, (row) => names.label(side, tasks.functionName(row)));
  return new Map([...byLabel].map(([label, rows]) => [label, rows.map((row) => tasks.durations[row])]));
}
