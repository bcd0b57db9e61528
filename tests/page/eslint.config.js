// Rules for the modules of the pages. tsc checks whether names exist.

import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    rules: {
      "no-undef": "off",
      "prefer-const": "error",
      "no-var": "error",
      "no-shadow": "error",
      "object-shorthand": "error",
      "prefer-arrow-callback": "error",
      eqeqeq: "error",
      complexity: ["error", 20],
      "max-len": ["error", 120],
      "max-lines": ["error", { max: 375, skipBlankLines: true, skipComments: true }],
      "max-lines-per-function": ["error", 60],
    },
  },
];
