/* Search runs in a worker, which browsers refuse to pages opened from a file. There a hidden frame takes its place.
 * SPDX-License-Identifier: Apache-2.0 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      const deliver = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }));
      inside.postMessage = (data) => deliver(this, data);
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.append(script);
      });
      this.postMessage = (data) => this.ready.then(() => deliver(inside, data));
    }
  };
}
