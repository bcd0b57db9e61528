// Lets node load the modules of the pages: they have no package that calls them modules, and ask a
// browser for a few things as they begin.

import { register } from "node:module";

const hook = `export function load(url, context, next) {
  return next(url, url.includes("/report/page/") ? { ...context, format: "module" } : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
Map.groupBy ??= (items, keyOf) => {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
};
