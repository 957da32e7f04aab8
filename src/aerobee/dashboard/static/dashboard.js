// What pages do in a browser beyond links and forms. Everything works without it, but charts and the live tail.
(function () {
  "use strict";
  var root = document.documentElement;

  function keep(name, value) {
    try { localStorage.setItem(name, value); } catch (error) { /* it then holds for this page only */ }
  }

  // -- theme

  var themes = ["system", "light", "dark"];
  function showTheme(button) {
    var now = root.dataset.theme || "system";
    button.textContent = "Theme: " + now;
  }
  document.querySelectorAll("button.theme").forEach(function (button) {
    showTheme(button);
    button.addEventListener("click", function () {
      var next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
      if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
      keep("aerobee.theme", next);
      showTheme(button);
      drawAll();
    });
  });

  // -- times: UTC or local; the distance from now is always beside them

  var pad = function (number) { return String(number).padStart(2, "0"); };
  function stamp(ms, exact) {
    var at = new Date(ms);
    // The same moment on a clock of UTC that shows the local time.
    if (root.dataset.zone === "local") at = new Date(ms - at.getTimezoneOffset() * 60000);
    return at.toISOString().slice(0, exact ? 23 : 19).replace("T", " ");
  }
  function showTimes(within) {
    within.querySelectorAll("time[data-ms]").forEach(function (one) {
      var ms = Number(one.dataset.ms);
      var at = one.querySelector(".at");
      if (at && !isNaN(new Date(ms).getTime())) at.textContent = stamp(ms, one.dataset.exact !== undefined);
      one.title = "UTC " + one.getAttribute("datetime") + "\nlocal " + new Date(ms).toString();
    });
  }
  // How long ago a moment was, in the words of the server. Its clock counts, not the one of this machine.
  var ahead = Date.now() - (Number(document.body.dataset.now) || Date.now());
  function span(ms) {
    var seconds = Math.floor(ms / 1000), units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
    for (var place = 0; place < units.length; place += 1) {
      var unit = units[place], rest = Math.floor(seconds % unit[0] / unit[2]);
      if (seconds >= unit[0]) return Math.floor(seconds / unit[0]) + " " + unit[1] + (rest ? " " + rest + " " + unit[3] : "");
    }
    return seconds + " s";
  }
  function tellAgo() {
    if (document.hidden || String(getSelection())) return;
    document.querySelectorAll("time[data-ms]").forEach(function (one) {
      var ago = one.querySelector(".ago"), away = Date.now() - ahead - Number(one.dataset.ms);
      if (ago) ago.textContent = Math.abs(away) < 1000 ? "now" : away > 0 ? span(away) + " ago" : "in " + span(-away);
    });
  }
  setInterval(tellAgo, 5000);
  document.querySelectorAll("button.zone").forEach(function (button) {
    var say = function () {
      var local = root.dataset.zone === "local";
      button.textContent = "Times: " + (local ? "local" : "UTC");
      document.querySelectorAll(".zone-words").forEach(function (words) {
        words.textContent = "Times are " + (local ? "local (" + Intl.DateTimeFormat().resolvedOptions().timeZone + ")" : "in UTC") + ".";
      });
    };
    say();
    button.addEventListener("click", function () {
      if (root.dataset.zone === "local") delete root.dataset.zone; else root.dataset.zone = "local";
      keep("aerobee.zone", root.dataset.zone || "utc");
      say();
      showTimes(document);
      drawAll();
    });
  });
  showTimes(document);

  // -- menu on narrow screens, and keys

  document.querySelectorAll("button.menu-button").forEach(function (button) {
    button.addEventListener("click", function () {
      var open = document.getElementById("menu").classList.toggle("open");
      document.body.classList.toggle("menu-open", open);
      button.setAttribute("aria-expanded", String(open));
    });
  });
  document.addEventListener("keydown", function (event) {
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      var jump = document.getElementById("jump");
      if (jump) { event.preventDefault(); jump.focus(); }
    }
    if (event.key === "Escape" && typing) document.activeElement.blur();
  });

  // -- pages that renew themselves: not while hidden, paused, or while somebody types or selects

  var paused = false;
  document.querySelectorAll("button.pause").forEach(function (button) {
    button.addEventListener("click", function () {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      button.textContent = paused ? "Go on" : "Pause";
    });
  });
  document.body.addEventListener("htmx:beforeRequest", function (event) {
    var busy = document.activeElement && document.activeElement.closest && document.activeElement.closest(".block form");
    if (document.hidden || paused || busy || String(getSelection())) event.preventDefault();
  });
  document.body.addEventListener("htmx:oobBeforeSwap", function (event) {
    var inside = event.detail.target && event.detail.target.contains(document.activeElement);
    // What is announced is not announced again while it is the same.
    var same = event.detail.target && event.detail.target.id === "b-problems" &&
      event.detail.fragment.textContent.trim() === event.detail.target.textContent.trim();
    if (inside || same) event.detail.shouldSwap = false;
  });
  // A page that cannot be renewed says so: what it shows grows old.
  document.body.addEventListener("htmx:afterRequest", function (event) {
    var stale = document.getElementById("stale"), xhr = event.detail.xhr, words = "";
    if (!event.detail.successful) {
      words = "This page could not be renewed: " + (xhr.status ? "the dashboard answered " + xhr.status + "." : "the dashboard does not answer.");
    } else if (xhr.responseText.indexOf('id="b-asof"') < 0) {
      words = "The session has ended, so this page is no longer renewed. Load it again to log in.";
    }
    if (stale && stale.textContent !== words) { stale.textContent = words; stale.hidden = !words; }
  });
  document.body.addEventListener("htmx:oobAfterSwap", function (event) { showTimes(event.detail.target); });

  // -- changes: a second click sends nothing, and one box chooses all

  document.querySelectorAll("form.go").forEach(function (form) {
    var button = form.querySelector("button[type=submit]"), word = button.textContent;
    form.addEventListener("submit", function (event) {
      if (form.dataset.sent) { event.preventDefault(); return; }
      form.dataset.sent = "1";
      button.setAttribute("aria-disabled", "true");
      button.textContent = "Working…";
    });
    // The browser may show this page again as it was left.
    window.addEventListener("pageshow", function () {
      delete form.dataset.sent;
      button.removeAttribute("aria-disabled");
      button.textContent = word;
    });
  });
  document.querySelectorAll("form.picks").forEach(function (form) {
    var boxes = Array.from(form.querySelectorAll("td.pick input")), button = form.querySelector("p button");
    var all = document.createElement("input"), word = button.textContent;
    all.type = "checkbox";
    all.setAttribute("aria-label", "Choose all that are shown");
    form.querySelector("th.pick").appendChild(all);
    function say() {
      var count = boxes.filter(function (box) { return box.checked; }).length;
      all.checked = count === boxes.length;
      all.indeterminate = count > 0 && count < boxes.length;
      button.textContent = word + (count ? " (" + count + ")" : "");
    }
    all.addEventListener("change", function () { boxes.forEach(function (box) { box.checked = all.checked; }); say(); });
    form.addEventListener("change", say);
    window.addEventListener("pageshow", say);
  });

  // After a change the address is that of the page before: a reload must not repeat the change.
  var posted = document.querySelector("[data-posted]");
  if (posted) history.replaceState(null, "", posted.dataset.posted);

  // -- charts

  var HEIGHT = 180;
  var charts = [];
  var spans = { "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h" };
  function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }
  function figure(value, unit) {
    if (value === null || value === undefined) return "–";
    var text = value >= 1e9 ? (value / 1e9).toFixed(1) + " G" : value >= 1e6 ? (value / 1e6).toFixed(1) + " M" :
      value >= 1e4 ? (value / 1e3).toFixed(1) + " k" : value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
    return unit === "%" ? text + " %" : unit === "/s" ? text + " /s" : text;
  }
  function draw(chart) {
    if (!chart.data) return;
    if (chart.plot) { chart.plot.destroy(); chart.plot = null; }
    var clock = function (plot, ticks) {
      var brief = ticks.length > 1 && ticks[1] - ticks[0] < 60;
      return ticks.map(function (tick) {
        var at = new Date(tick * 1000), local = root.dataset.zone === "local";
        return local ? pad(at.getHours()) + ":" + pad(at.getMinutes()) + (brief ? ":" + pad(at.getSeconds()) : "") : at.toISOString().slice(11, brief ? 19 : 16);
      });
    };
    var axis = { font: "12px system-ui, sans-serif", stroke: colour("--soft"), grid: { stroke: colour("--line-soft"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    var series = [{}].concat(chart.labels.map(function (label, place) {
      return {
        label: label, stroke: colour("--line" + (place % 6 + 1)), width: 2,
        fill: chart.labels.length < 3 && place === 0 ? colour("--line" + (place % 6 + 1)) + "1c" : undefined, dash: place >= 6 ? [6, 4] : undefined,
        points: { show: chart.data[0].length < 3 }, spanGaps: false,
        value: function (plot, value) { return figure(value, chart.unit); }
      };
    }));
    // A young chart begins with its first values, and not with a quarter of an hour of nothing.
    var now = chart.now / 1000;
    var begin = Math.max(now - chart.seconds, Math.min(chart.data[0].length ? chart.data[0][0] : now, now - 60));
    chart.plot = new uPlot({
      width: Math.max(200, chart.element.clientWidth), height: HEIGHT,
      tzDate: function (seconds) { return root.dataset.zone === "local" ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "UTC"); },
      scales: { x: { range: [begin, now] }, y: { range: function (plot, low, high) { return [0, chart.unit === "%" ? 100 : Math.max(high * 1.1, 1)]; } } },
      axes: [Object.assign({ values: clock, space: 70, size: 34 }, axis), Object.assign({ size: 58, values: function (plot, ticks) { return ticks.map(function (tick) { return figure(tick, chart.unit === "%" ? "%" : ""); }); } }, axis)],
      cursor: { drag: { x: false, y: false } }, legend: { show: false }, series: series
    }, chart.data, chart.element);
    chart.plot.over.addEventListener("mouseleave", function () { tell(chart); });
    chart.plot.over.addEventListener("mousemove", function () {
      if (chart.plot && chart.plot.cursor.idx !== null) tell(chart, chart.plot.cursor.idx);
    });
  }
  // The words below a chart: the last values, or those under the pointer.
  function tell(chart, place) {
    var words = chart.labels.map(function (label, number) {
      var values = chart.data[number + 1];
      var at = place;
      if (at === undefined) { at = values.length - 1; while (at >= 0 && values[at] === null) at -= 1; }
      return { text: label + " " + (at >= 0 && values.length ? figure(values[at], chart.unit) : "no value yet"), colour: "key" + (number % 6 + 1) };
    });
    chart.words.replaceChildren();
    if (place !== undefined) chart.words.append(stamp(chart.data[0][place] * 1000) + "  ");
    words.forEach(function (one) {
      var span = document.createElement("span");
      span.className = "key " + one.colour;
      span.textContent = one.text;
      chart.words.append(span);
    });
  }
  // The same values for those who do not see lines: at most twelve moments, the newest first.
  function tabulate(chart) {
    if (!chart.data || !chart.details.open) return;
    var table = chart.details.querySelector("table"), head = document.createElement("tr"), times = chart.data[0];
    function add(row, name, text, right) {
      var cell = document.createElement(name);
      if (name === "th") cell.scope = "col";
      if (right) cell.className = "right";
      cell.textContent = text;
      row.appendChild(cell);
    }
    add(head, "th", "Time (" + (root.dataset.zone === "local" ? "local" : "UTC") + ")");
    chart.labels.forEach(function (label) { add(head, "th", label, true); });
    table.replaceChildren(head);
    var step = Math.max(1, Math.floor(times.length / 12));
    for (var place = times.length - 1, rows = 0; place >= 0 && rows < 12; place -= step, rows += 1) {
      var row = document.createElement("tr");
      add(row, "td", stamp(times[place] * 1000));
      for (var line = 1; line < chart.data.length; line += 1) add(row, "td", figure(chart.data[line][place], chart.unit), true);
      table.appendChild(row);
    }
  }
  function drawAll() { charts.forEach(function (chart) { draw(chart); tabulate(chart); }); }
  function load(chart) {
    if (document.hidden && chart.data) return;
    var query = new URLSearchParams({ names: chart.names.join("\n"), span: chart.span });
    fetch(chart.url + "?" + query, { credentials: "same-origin" }).then(function (answer) {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.json();
    }).then(function (told) {
      chart.now = told.now;
      chart.seconds = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400 }[chart.span];
      chart.data = [told.times.map(function (ms) { return ms / 1000; })].concat(chart.names.map(function (name) { return told.series[name]; }));
      tell(chart);
      draw(chart);
      tabulate(chart);
    }).catch(function () { chart.words.textContent = "The figures cannot be loaded now."; });
  }
  document.querySelectorAll(".plot").forEach(function (element) {
    var block = element.closest(".block");
    var chart = {
      element: element, url: element.dataset.url, unit: element.dataset.unit, names: element.dataset.series.split("\n"),
      labels: element.dataset.labels.split("\n"), span: "15m", words: block.querySelector(".plot-words"), details: block.querySelector(".plot-table"), data: null, plot: null
    };
    chart.details.addEventListener("toggle", function () { tabulate(chart); });
    if (!element.dataset.series) { chart.words.textContent = "There is nothing to draw yet."; chart.details.hidden = true; return; }
    var choices = document.createElement("div");
    choices.className = "chart-spans";
    Object.keys(spans).forEach(function (span) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = spans[span];
      button.setAttribute("aria-pressed", String(span === chart.span));
      button.addEventListener("click", function () {
        chart.span = span;
        choices.querySelectorAll("button").forEach(function (one) { one.setAttribute("aria-pressed", String(one === button)); });
        load(chart);
      });
      choices.appendChild(button);
    });
    block.insertBefore(choices, element);
    charts.push(chart);
    load(chart);
  });
  if (charts.length) {
    var loads = 0;
    var again = function () {
      charts.forEach(function (chart) { if (!paused) load(chart); });
      loads += 1;
      setTimeout(again, loads < 5 ? 2500 : 10000);
    };
    setTimeout(again, 2500);
    var resizing = null;
    window.addEventListener("resize", function () { clearTimeout(resizing); resizing = setTimeout(drawAll, 150); });
  }

  // -- live tail

  var ROWS = 200;
  var HIDDEN_MS = 5 * 60 * 1000;
  document.querySelectorAll(".tail").forEach(function (element) {
    var state = element.querySelector(".tail-state"), stop = element.querySelector(".tail-stop"), body = element.querySelector("tbody");
    var source = null, shown = 0, counted = 0, hidden = null;
    function say(words) { state.textContent = words + " · " + shown + " shown" + (counted ? ", " + counted + " more only counted" : ""); }
    function end(words) {
      if (source) source.close();
      source = null;
      stop.textContent = "Start";
      say(words);
    }
    function add(one) {
      var row = document.createElement("tr");
      var cells = [["Stored", ""], ["Place", ""], ["Tag", one.tag], ["Keys", one.keys], ["Body", one.body]];
      cells.forEach(function (head, place) {
        var cell = document.createElement("td"), text = head[1];
        cell.dataset.label = head[0];
        cell.className = "c-" + head[0].toLowerCase();
        if (place === 0) {
          var time = document.createElement("time"), at = document.createElement("span");
          time.dataset.ms = one.stored;
          time.dataset.exact = "";
          time.setAttribute("datetime", isNaN(new Date(one.stored)) ? "" : new Date(one.stored).toISOString());
          at.className = "at";
          time.appendChild(at);
          cell.appendChild(time);
        } else if (place === 1) {
          var link = document.createElement("a");
          link.href = one.url;
          link.textContent = one.place;
          cell.appendChild(link);
        } else { cell.textContent = text; }
        row.appendChild(cell);
      });
      showTimes(row);
      body.insertBefore(row, body.firstChild);
      while (body.children.length > ROWS) body.removeChild(body.lastChild);
    }
    function begin() {
      source = new EventSource(element.dataset.url);
      stop.textContent = "Stop";
      say("connecting");
      source.addEventListener("following", function () { say("following: waiting for messages"); });
      source.addEventListener("messages", function (event) {
        var told = JSON.parse(event.data);
        told.messages.forEach(add);
        shown += told.messages.length;
        counted += told.counted;
        say("running");
      });
      source.addEventListener("failed", function (event) { end(JSON.parse(event.data).words); });
      source.addEventListener("error", function () { if (source && source.readyState === 2) end("the connection ended"); else say("connecting again"); });
    }
    stop.addEventListener("click", function () { if (source) end("stopped"); else begin(); });
    document.addEventListener("visibilitychange", function () {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(function () { if (source) end("stopped, because the tab was hidden for 5 minutes"); }, HIDDEN_MS);
    });
    window.addEventListener("pagehide", function () { if (source) source.close(); });
    begin();
  });
})();
