/* trace_page_query.js - what a search is: words and sizes, all of which a block must meet.
 *
 *     conv weights >1M client:numba
 *
 * A word is looked for in all texts of a block, or, with a name and a colon before it, in one of
 * them; a size is compared with what was asked for.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Query = (() => {
  const UNITS = {'': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40};
  const SIZE = /^(?:size)?([<>]=?|=)(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?$/;
  const FIELD = /^(client|kind|node|value|tensor|stream|call|address):(.*)$/;
  const TESTS = {'<': (a, b) => a < b, '>': (a, b) => a > b, '<=': (a, b) => a <= b, '>=': (a, b) => a >= b, '=': (a, b) => a === b};

  /* The texts of a lent block that are searched, by name. */
  function textsOf(block) {
    const {kind, node, tensor} = Labels.text(block.label);
    const parts = Labels.partsOf(block).map((part) => Labels.name(part.label)).join('\n');
    return {client: Model.client(block.client), kind, node, tensor: `${tensor}\n${parts}`, stream: Model.streamName(block.stream),
      call: Labels.frames(Describe.stackOf(block)).map(Labels.frameText).join('\n'), address: Model.address(block.addr)};
  }

  function termOf(word) {
    const size = SIZE.exec(word);
    if (size !== null) {
      const [, sign, number, unit] = size;
      return (block) => TESTS[sign](block.requested, Number(number) * UNITS[unit]);
    }
    const field = FIELD.exec(word);
    if (field !== null) {
      const name = field[1] === 'value' ? 'tensor' : field[1];
      return (_, texts) => texts[name].toLowerCase().includes(field[2]);
    }
    return (_, texts) => Object.values(texts).some((text) => text.toLowerCase().includes(word));
  }

  /* A function of a block, or null where nothing is looked for. "size > 1 M" may be written with
   * spaces. */
  function parse(text) {
    const words = text.toLowerCase().replace(/([<>=])\s+(?=[\d=])/g, '$1').replace(/\bsize\s+(?=[<>=])/g, 'size')
      .replace(/([<>=]\d[\d.]*)\s+(?=[kmgt]i?b?(?:\s|$)|b(?:\s|$))/g, '$1').split(/\s+/).filter(Boolean);
    if (words.length === 0) {
      return null;
    }
    const terms = words.map(termOf);
    return (block) => {
      const texts = block.state === STATE.LENT ? textsOf(block) : null;
      return texts !== null && terms.every((term) => term(block, texts));
    };
  }

  return {parse};
})();
