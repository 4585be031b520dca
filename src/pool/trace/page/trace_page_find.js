/* trace_page_find.js - the blocks that are lent: searched, listed by what they are for or one by one,
 * and saved.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Find = (() => {
  const STEP = 12; /* rows at first, and more each time */
  const box = document.getElementById('find');
  const by = (id) => document.getElementById(id);
  let lent = [];
  let groups = null;
  let moment = 0;
  let found = [];
  const shown = {purposes: STEP, blocks: STEP};

  /* Blocks with equal labels in one row; parts of blocks apart. */
  function purposesOf(blocks) {
    const all = new Map();
    function add(label, block, size, count) {
      const row = all.get(label) ?? {label, block, size: 0, count: 0};
      row.size += size;
      row.count += count;
      all.set(label, row);
    }
    for (const block of blocks) {
      let rest = block.size;
      for (const part of Labels.partsOf(block)) {
        add(part.label, block, part.size, 1);
        rest -= part.size;
      }
      if (rest > 0) {
        add(block.label, block, rest, rest === block.size ? 1 : 0);
      }
    }
    return [...all.values()].sort((a, b) => b.size - a.size);
  }

  function more(id, all) {
    const button = by(`more-${id}`);
    button.hidden = all <= shown[id];
    button.textContent = `Show ${Text.count(Math.min(STEP * 4, all - shown[id]))} more of ${Text.count(all)}`;
  }

  const dash = (text) => text || '–';

  function writePurposes() {
    const rows = purposesOf(found);
    const total = found.reduce((sum, block) => sum + block.size, 0);
    Tables.table('purposes', [['node', 'wide'], ['value', 'wide text'], ['kind', 'text'], ['in use', null], ['blocks', null], ['share', null]],
      rows.slice(0, shown.purposes).map(({label, block, size, count}) => {
        const {kind, node, tensor} = Labels.text(label);
        const name = node || (tensor === '' ? Model.client(block.client) : '–');
        return [groups.by === 'kind' || groups.by === 'node'
          ? Tables.named(groups, groups.by, block[groups.by], name) : Text.make('span', {title: name}, name),
        Text.make('span', {title: tensor}, dash(tensor)), kind, Text.bytes(size), Text.count(count),
        Text.percent(total > 0 ? size / total : 0)];
      }), 'No block is found.');
    more('purposes', rows.length);
  }

  /* Chooses the block where its region is drawn. */
  function link(block) {
    const button = Text.make('button', {type: 'button', class: 'link', title: 'Show it in its region'},
      Text.make('code', {}, Model.address(block.addr)));
    button.addEventListener('click', () => Regions.choose(block.addr));
    return button;
  }

  function writeBlocks() {
    Tables.table('blocks-found', [['for', 'wide'], ['client', 'text'], ['size', null], ['stream', 'text'], ['address', 'two'],
      ['allocated at', null]],
    found.slice(0, shown.blocks).map((block) => [
      Tables.named(groups, groups.by, block[groups.by], Labels.name(block.label) || Labels.KINDS[block.kind]),
      Text.make('span', {title: Model.client(block.client)}, Model.client(block.client)), Text.bytes(block.size),
      Text.make('span', {title: Model.streamHandle(block.stream)}, Model.streamName(block.stream)), link(block),
      Describe.since(block) ?? '–']), 'No block is found.');
    more('blocks', found.length);
  }

  function search() {
    const test = Query.parse(box.value);
    found = (test === null ? [...lent] : lent.filter(test)).sort((a, b) => b.size - a.size);
    const size = found.reduce((sum, block) => sum + block.size, 0);
    by('found').textContent = `${test === null ? 'All' : 'Found'}: ${Text.plural(found.length, 'block')}, ${Text.bytes(size)}`;
    by('found').dataset.blocks = found.length;
    by('save-csv').disabled = by('save-json').disabled = found.length === 0;
    writePurposes();
    writeBlocks();
    return test;
  }

  /* Returns which blocks are looked for, or null. */
  function show(withGroups, blocks, at) {
    [groups, lent, moment] = [withGroups, blocks, at];
    return search();
  }

  function searchAnew() {
    shown.purposes = shown.blocks = STEP;
    Regions.find(search());
  }

  const stem = () => `memory-${Model.about.device.replace(':', '-')}-event-${moment}`;

  function listen(onSearch) {
    box.addEventListener('input', () => {
      searchAnew();
      onSearch(box.value);
    });
    by('save-csv').addEventListener('click', () => Export.save(`${stem()}.csv`, 'text/csv', Export.csv(found)));
    by('save-json').addEventListener('click', () => Export.save(`${stem()}.json`, 'application/json', Export.json(found, moment, box.value)));
    for (const [id, write] of [['purposes', writePurposes], ['blocks', writeBlocks]]) {
      by(`more-${id}`).addEventListener('click', () => {
        shown[id] += STEP * 4;
        write();
      });
    }
  }

  return {show, listen, look: (text) => { box.value = text; }, found: () => found};
})();
