/* SPDX-License-Identifier: Apache-2.0 */
/* A figure: title that says what is seen, a line with unit and definition, controls, what is drawn, the
 * key, downloads. Figures are drawn one after the other while the page is already there, drawn again
 * when theme, width or choice changes, and say why when they have nothing to show. */
const figures = [];

/* spec: {id, title, lead(), caption, wide, controls: [control...], draw(host, figure)} draw puts
 * canvases into host and may return {legend: [{label, style, ...}], csv: rows, empty: "reason"}. lead
 * gives a sentence with the numbers of what is shown. figure.values holds what the controls say. */
function figure(spec) {
    const fig = {spec, values: {}, csv: null, drawn: false, charts: []};
    fig.title = el("h3", {id: spec.id + "-title"}, spec.title);
    fig.lead = el("p", {class: "lead"});
    fig.host = el("div", {class: "canvases"});
    fig.legend = el("ul", {class: "legend"});
    fig.tools = el("div", {class: "tools"});
    fig.readout = el("p", {class: "readout", "aria-live": "polite"});
    const controls = (spec.controls || []).map((make) => make(fig));
    fig.node = el(
        "figure",
        {id: spec.id, class: spec.wide ? "wide" : null, "aria-labelledby": spec.id + "-title"},
        el("div", {class: "figure-head"}, fig.title, fig.tools),
        spec.lead ? fig.lead : null,
        spec.caption ? el("figcaption", null, spec.caption) : null,
        controls.length ? el("div", {class: "controls"}, controls) : null,
        fig.host,
        fig.readout,
        fig.legend,
    );
    figures.push(fig);
    return fig.node;
}

function figureClear(fig) {
    for (const chart of fig.charts) chart.destroy();
    fig.charts = [];
    fig.host.replaceChildren();
    fig.legend.replaceChildren();
    fig.tools.replaceChildren();
    fig.readout.textContent = "";
}

function figureDraw(fig) {
    const held = fig.host.offsetHeight; /* the page must not jump while the old drawing is taken away */
    fig.host.style.minHeight = held + "px";
    figureClear(fig);
    let made;
    try {
        if (fig.spec.lead) fig.lead.textContent = fig.spec.lead() || "";
        made = fig.spec.draw(fig.host, fig) || {};
    } catch (problem) {
        fig.node.dataset.failed = String((problem && problem.stack) || problem);
        made = {empty: "it could not be drawn (" + ((problem && problem.message) || problem) + ")"};
    }
    fig.drawn = true;
    fig.host.style.minHeight = "";
    if (made.empty) {
        fig.node.dataset.empty = "";
        fig.host.replaceChildren(el("p", {class: "empty"}, "Nothing to show: " + made.empty + "."));
        return;
    }
    delete fig.node.dataset.empty;
    fig.keys = made.legend || [];
    fig.legend.classList.toggle("long", fig.keys.length > 10);
    append(fig.legend, fig.keys.map(legendItem));
    if (made.csv) fig.tools.append(csvLink(made.csv, fig.spec.id, "CSV"));
    fig.tools.append(
        el("button", {type: "button", class: "tool", onclick: () => figureSave(fig)}, "PNG"),
        el("button", {type: "button", class: "tool", onclick: () => figureSaveSvg(fig)}, "SVG"),
    );
}

/* A key: {label, style} for a series, {label, mark: "dash" | "ring" | "tick" | "dot" | ..., colour} for
 * anything else. */
function legendItem(key) {
    return el("li", {title: plain(key.label)}, swatch(key), el("bdi", null, plain(key.label, 34)));
}

function swatch(key) {
    const canvas = el("canvas", {class: "swatch", "aria-hidden": "true"});
    const size = canvasSize(canvas, 22, 12);
    drawSwatch(size.ctx, 11, 6, key);
    canvas.key = key; /* for drawing it again in other colours */
    return canvas;
}

function drawSwatch(ctx, x, y, key) {
    const colour = key.style ? seriesColour(key.style) : key.colour || cssColour("muted");
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = 2;
    if (key.mark && key.mark !== "dash") return drawMarker(ctx, key.mark, x, y, 4);
    ctx.setLineDash(key.mark === "dash" ? [3, 3] : key.dash || (key.style ? key.style.dash : []));
    ctx.beginPath();
    ctx.moveTo(x - 10, y);
    ctx.lineTo(x + 10, y);
    ctx.stroke();
    ctx.setLineDash([]);
    if (key.style) drawMarker(ctx, key.style.marker, x, y, 3);
    return undefined;
}

function drawMarker(ctx, kind, x, y, r) {
    ctx.beginPath();
    if (kind === "rect") ctx.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
    else if (kind === "triangle")
        [
            [0, -1.1],
            [1.05, 0.8],
            [-1.05, 0.8],
        ].forEach(([dx, dy], i) => ctx[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
    else if (kind === "rectRot")
        [
            [0, -1.2],
            [1.2, 0],
            [0, 1.2],
            [-1.2, 0],
        ].forEach(([dx, dy], i) => ctx[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
    else if (kind === "tick") ctx.rect(x - 1, y - r * 1.4, 2, r * 2.8);
    else if (kind === "cross")
        [
            [-1, -1],
            [1, 1],
            [-1, 1],
            [1, -1],
        ].forEach(([dx, dy], i) => ctx[i % 2 ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
    else ctx.arc(x, y, r, 0, 2 * Math.PI);
    if (kind === "ring" || kind === "cross") {
        ctx.lineWidth = 1.5;
        return ctx.stroke();
    }
    ctx.closePath();
    return ctx.fill();
}

/* Device pixels per CSS pixel: at least two, so that saved pictures and paper are sharp too. */
const pixelRatio = () => (svgRecording ? 1 : clamp(devicePixelRatio || 1, 2, 3));

/* Sizes a canvas in CSS pixels; gives its context, scaled. */
function canvasSize(canvas, width, height) {
    const ratio = pixelRatio();
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const ctx = svgRecording ? svgCanvas(canvas) : canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    return {ctx, width, height};
}

/* Keys that stand outside of figures, when the colours change. */
function swatchesRedraw(root) {
    for (const canvas of root.querySelectorAll("canvas.swatch"))
        drawSwatch(canvasSize(canvas, 22, 12).ctx, 11, 6, canvas.key);
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const font = (size, weight = 400) => weight + " " + size + "px " + FONT;

/* Controls are makers: called with the figure they belong to, they set its value and give the element. */
function selectControl(name, label, options, initial) {
    return (fig) => {
        fig.values[name] = initial === undefined ? options[0] && options[0].value : initial;
        const node = el(
            "select",
            {
                onchange: () => {
                    fig.values[name] = options[node.selectedIndex].value;
                    figureDraw(fig);
                },
            },
            options.map((o) => el("option", {selected: o.value === fig.values[name]}, plain(o.label, 40))),
        );
        return options.length > 1 ? el("label", {class: "control"}, label + " ", node) : null;
    };
}

function checkControl(name, label, initial) {
    return (fig) => {
        fig.values[name] = initial;
        const node = el("input", {
            type: "checkbox",
            checked: initial,
            onchange: () => {
                fig.values[name] = node.checked;
                figureDraw(fig);
            },
        });
        return el("label", {class: "control"}, node, " " + label);
    };
}

/* The figure as one picture: its title, everything drawn, its key, on the colour of the page. */
function figureSave(fig) {
    const box = fig.host.getBoundingClientRect();
    const scale = 2;
    const pad = 16;
    const title = fig.title.textContent;
    const out = el("canvas");
    const ctx = out.getContext("2d");
    ctx.font = font(12);
    const keys = layOutKeys(ctx, fig.keys, box.width);
    const top = 34;
    out.width = Math.round((box.width + 2 * pad) * scale);
    out.height = Math.round((top + box.height + keys.height + 2 * pad) * scale);
    ctx.scale(scale, scale);
    ctx.fillStyle = cssColour("surface");
    ctx.fillRect(0, 0, out.width, out.height);
    ctx.textBaseline = "middle";
    ctx.fillStyle = cssColour("ink");
    ctx.font = font(15, 600);
    ctx.fillText(fitText(ctx, plain(title), box.width), pad, pad + 10);
    for (const canvas of fig.host.querySelectorAll("canvas")) {
        const at = canvas.getBoundingClientRect();
        ctx.drawImage(canvas, pad + at.left - box.left, pad + top + at.top - box.top, at.width, at.height);
    }
    ctx.font = font(12);
    for (const k of keys.items) {
        const x = pad + k.x;
        const y = pad + top + box.height + 12 + k.y;
        drawSwatch(ctx, x + 11, y, k.key);
        ctx.fillStyle = cssColour("ink");
        ctx.fillText(k.text, x + 28, y);
    }
    el("a", {download: fileName(fig.spec.id, "png"), href: out.toDataURL("image/png")}).click();
}

function layOutKeys(ctx, keys, width) {
    const items = [];
    let x = 0;
    let y = 0;
    for (const key of keys) {
        const text = plain(key.label, 34);
        const need = 28 + ctx.measureText(text).width + 18;
        if (x && x + need > width) [x, y] = [0, y + 20];
        items.push({key, text, x, y});
        x += need;
    }
    return {items, height: items.length ? y + 24 : 0};
}

/* Draws what is not drawn yet, a few at a time, so that the page answers meanwhile; `then` is called at
 * the end. */
function figuresDrawSoon(then) {
    const start = performance.now();
    for (const fig of figures) {
        if (fig.drawn) continue;
        figureDraw(fig);
        if (performance.now() - start > 40) return void setTimeout(() => figuresDrawSoon(then), 0);
    }
    return void then();
}

/* For a new theme, width or choice of series. */
function figuresRedraw() {
    const state = document.documentElement.dataset;
    for (const fig of figures) fig.drawn = false;
    state.state = "drawing";
    clearTimeout(figuresRedraw.timer);
    figuresRedraw.timer = setTimeout(() => figuresDrawSoon(() => (state.state = "drawn")), 0);
}

/* Own canvases do not stretch with the window; Chart.js would, but a figure is drawn as a whole. */
function figuresFollowWidth(node) {
    let width = node.clientWidth;
    new ResizeObserver(() => {
        if (theme.printing || Math.abs(node.clientWidth - width) < 2) return;
        width = node.clientWidth;
        figuresRedraw();
    }).observe(node);
}

/* Paper: light, at the width of the sheet, everything drawn before the browser lays it out. */
function figuresFollowPrinting(before, after) {
    const set = (on) => {
        theme.printing = on;
        document.documentElement.classList.toggle("printing", on);
        document.documentElement.dataset.theme = themeIsDark() ? "dark" : "light";
        (on ? before : after)();
        for (const fig of figures) figureDraw(fig);
    };
    addEventListener("beforeprint", () => set(true));
    addEventListener("afterprint", () => set(false));
}
