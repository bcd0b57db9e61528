// Durations of the task runs of two sides by function.

export const SIDES = ["before", "after"];

/** Returns the seconds of the successful task runs of each function. */
export function secondsByFunction(tasks) {
  const succeeded = [...tasks.rows].filter((row) => tasks.stateName(row) === "memory");
  const byName = Map.groupBy(succeeded, (row) => tasks.functionName(row));
  return new Map([...byName].map(([name, rows]) => [name, rows.map((row) => tasks.durations[row])]));
}
