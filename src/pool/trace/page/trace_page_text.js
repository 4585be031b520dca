/* trace_page_text.js - numbers as people read them, and elements made without markup: no text from
 * the trace is ever parsed as HTML.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Text = (() => {
  const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const whole = new Intl.NumberFormat('en');

  /* Three digits and a unit: 1.50 GiB. */
  function bytes(value) {
    let unit = 0;
    let rest = Math.abs(value);
    while (rest >= 1000 && unit < UNITS.length - 1) {
      rest /= 1024;
      unit++;
    }
    const digits = unit === 0 || Number.isInteger(rest) ? 0 : rest < 10 ? 2 : rest < 100 ? 1 : 0;
    return `${value < 0 ? '−' : ''}${rest.toFixed(digits)} ${UNITS[unit]}`;
  }

  /* The same for round numbers: 1.5 GiB. */
  function roundBytes(value) {
    return bytes(value).replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');
  }

  function count(value) {
    return whole.format(value);
  }

  /* A length of time with a fitting unit; `step` is how finely it must be told apart. */
  function time(ns, step = 0) {
    const size = Math.max(Math.abs(ns), 1);
    const [unit, scale] = size >= 1e9 ? ['s', 1e9] : size >= 1e6 ? ['ms', 1e6] : size >= 1e3 ? ['µs', 1e3] : ['ns', 1];
    const fine = step > 0 ? Math.ceil(-Math.log10(step / scale)) : 2 - Math.floor(Math.log10(size / scale));
    const digits = scale === 1 ? 0 : Math.min(9, Math.max(0, fine));
    return `${(ns / scale).toFixed(ns === 0 ? 0 : digits)} ${unit}`;
  }

  function percent(part) {
    return `${(part * 100).toFixed(part >= 0.0005 && part < 0.0995 ? 1 : 0)} %`;
  }

  function plural(value, one, many = `${one}s`) {
    return `${count(value)} ${value === 1 ? one : many}`;
  }

  /* An element. Children that are not elements become text. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null) {
        element.setAttribute(name, value);
      }
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /* <dl> of pairs; those without a value are left out. */
  function pairs(rows) {
    const list = make('dl');
    for (const [name, value] of rows) {
      if (value !== null && value !== undefined) {
        list.append(make('dt', {}, name), make('dd', {}, value));
      }
    }
    return list;
  }

  return {bytes, roundBytes, count, time, percent, plural, make, pairs};
})();

/* A fault of the page itself is said where people see it. */
addEventListener('error', (event) => {
  const notice = document.getElementById('fault');
  notice.textContent = `This page could not be drawn: ${event.message}`;
  notice.hidden = false;
});

/* The small window beside the pointer. */
const Tip = (() => {
  const element = document.getElementById('tip');

  function show(x, y, title, rows) {
    element.replaceChildren(Text.make('strong', {}, title), Text.pairs(rows));
    element.hidden = false;
    const box = element.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    const top = y + 18 + box.height > innerHeight ? y - 12 - box.height : y + 18;
    element.style.left = `${Math.max(4, left)}px`;
    element.style.top = `${Math.max(4, top)}px`;
  }

  function hide() {
    element.hidden = true;
  }

  return {show, hide};
})();
