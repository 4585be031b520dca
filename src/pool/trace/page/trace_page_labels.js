/* trace_page_labels.js - what memory is for: kinds, nodes, tensors, parts of blocks, call stacks.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Labels = (() => {
  const KINDS = ['weights', 'activations', 'workspace', 'other'];
  const nodes = []; /* their names, in the order they appear */
  let labels = [];  /* {kind, node, tensor}, kind and node as numbers */
  let parts = [];   /* {addr, size, label} by address */
  let about = null;

  /* Weights that no node owns, and what was asked for outside of any node, are groups like nodes. */
  function nodeName([kind, node, tensor]) {
    return node || (kind === 'weights' ? 'weights' : tensor) || 'without a label';
  }

  function read(source) {
    const known = new Map();
    about = source;
    labels = about.labels.map((label) => {
      const name = nodeName(label);
      if (!known.has(name)) {
        known.set(name, nodes.push(name) - 1);
      }
      return {kind: KINDS.indexOf(label[0]), node: known.get(name), tensor: label[2], ownNode: label[1]};
    });
    parts = about.parts.map(([addr, size, label]) => ({addr, size, label}));
  }

  /* Gives blocks and lives their kind and node beside their label. */
  function spread(source, blocks, lives) {
    read(source);
    lives.kind = new Uint8Array(lives.label.length);
    lives.node = new Uint32Array(lives.label.length);
    for (let i = 0; i < lives.count; i++) {
      lives.kind[i] = labels[lives.label[i]].kind;
      lives.node[i] = labels[lives.label[i]].node;
    }
    for (const block of blocks) {
      block.kind = labels[block.label].kind;
      block.node = labels[block.label].node;
    }
  }

  function text(label) {
    const {kind, ownNode, tensor} = labels[label];
    return {kind: KINDS[kind], node: ownNode, tensor};
  }

  /* "conv1: y", "y" or "conv1"; '' where the label has no name. */
  function name(label) {
    const {node, tensor} = text(label);
    return [node, tensor].filter(Boolean).join(': ');
  }

  /* The parts of a block that is lent now; by address. */
  function partsOf(block) {
    let low = 0;
    let high = parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (parts[middle].addr < block.addr) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    let end = low;
    while (end < parts.length && parts[end].addr < block.addr + block.size) {
      end++;
    }
    return parts.slice(low, end);
  }

  /* What else is known of memory with a label, as lines. */
  function notes(label) {
    return about.notes[label] || [];
  }

  /* [{file, line, call}], the innermost first. */
  function frames(stack) {
    return stack < 0 ? [] : about.stacks[stack].map((number) => {
      const [file, line, call] = about.frames[number];
      return {file, line, call};
    });
  }

  function frameText({file, line, call}) {
    return `${call}  ${file}:${line}`;
  }

  return {KINDS, nodes, spread, text, name, partsOf, notes, frames, frameText};
})();
