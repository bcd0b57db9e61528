// What the pages use of lit-html.

export interface TemplateResult {
  strings: TemplateStringsArray;
}
export function html(strings: TemplateStringsArray, ...values: unknown[]): TemplateResult;
export function render(content: unknown, container: Element | DocumentFragment): unknown;
export const nothing: symbol;
