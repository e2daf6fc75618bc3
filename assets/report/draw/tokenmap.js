/* SPDX-License-Identifier: Apache-2.0 */
/* An attention map: queries down, keys across, the tokens on both axes, and beside it a strip with one
 * value per query (the gate score). What lies above the diagonal cannot be attended to and stays empty. */

/* spec: {title, note (a line below the title), tokens, map: T*T values in 0..1 (row = query) or null,
 * strip: T values or null, stripLabel, root, label, why} root: colours follow the square root, which
 * brings out small values. */
function tokenMap(host, fig, spec, width) {
    const n = spec.tokens.length;
    const size = clamp(Math.floor(width / (n + 7)), 4, 30);
    const letter = clamp(size * 0.66, 8, 12);
    const axis = clamp(Math.round(letter * 6.5), 46, 84);
    const strip = spec.strip ? Math.max(12, size) + 10 : 0;
    const cell = Math.max(2, Math.min(size, (width - axis - strip - 4) / n));
    const side = cell * n;
    const canvas = el("canvas", {
        role: "img",
        tabindex: "0",
        "aria-label": plain(spec.label) + ". Arrow keys read single values.",
    });
    host.append(el("div", {class: "token-map"}, canvas));
    const box = {left: axis, top: axis + 38, cell, n, stripLeft: axis + side + 10, stripWidth: strip - 10};
    const {ctx} = canvasSize(canvas, Math.ceil(axis + side + strip + 2), Math.ceil(box.top + side + 2));
    ctx.fillStyle = cssColour("ink");
    ctx.font = font(13, 600);
    ctx.textBaseline = "top";
    ctx.fillText(fitText(ctx, plain(spec.title), axis + side + strip), 0, 0);
    ctx.fillStyle = cssColour("muted");
    ctx.font = font(12);
    if (!spec.map || spec.note)
        ctx.fillText(fitText(ctx, plain(spec.map ? spec.note : spec.why), axis + side), 0, 20);
    if (!spec.map) return undefined;
    drawTokens(ctx, spec.tokens, box, letter);
    drawMap(ctx, spec, box);
    if (spec.strip) drawStrip(ctx, spec, box);
    return mapReading(canvas, fig, spec, box);
}

/* Every k-th token where all of them do not fit. */
function drawTokens(ctx, tokens, box, letter) {
    const step = Math.max(1, Math.ceil((letter + 1) / box.cell));
    const room = box.left - 6;
    ctx.font = font(letter);
    ctx.fillStyle = cssColour("muted");
    ctx.textBaseline = "middle";
    for (let i = 0; i < tokens.length; i += step) {
        const text = fitText(ctx, tokenText(tokens[i], 16), room - 2);
        const middle = (i + 0.5) * box.cell;
        ctx.textAlign = "right";
        ctx.fillText(text, box.left - 4, box.top + middle);
        ctx.save();
        ctx.translate(box.left + middle, box.top - 4);
        ctx.rotate(-Math.PI / 2);
        ctx.textAlign = "left";
        ctx.fillText(text, 0, 0);
        ctx.restore();
    }
}

function drawMap(ctx, spec, box) {
    const tone = spec.root ? Math.sqrt : (v) => v;
    for (let q = 0; q < box.n; q++) {
        for (let k = 0; k <= q; k++) {
            const value = spec.map[q * box.n + k];
            const x = Math.round(box.left + k * box.cell);
            const y = Math.round(box.top + q * box.cell);
            ctx.fillStyle = isNumber(value) ? rgb(viridis(tone(value))) : cssColour("grid");
            ctx.fillRect(
                x,
                y,
                Math.round(box.left + (k + 1) * box.cell) - x + CELL_LAP,
                Math.round(box.top + (q + 1) * box.cell) - y + CELL_LAP,
            );
        }
    }
    ctx.strokeStyle = cssColour("line");
    ctx.strokeRect(
        Math.round(box.left) - 0.5,
        Math.round(box.top) - 0.5,
        Math.round(box.cell * box.n) + 1,
        Math.round(box.cell * box.n) + 1,
    );
}

function drawStrip(ctx, spec, box) {
    for (let q = 0; q < box.n; q++) {
        const y = Math.round(box.top + q * box.cell);
        const value = spec.strip[q];
        ctx.fillStyle = isNumber(value) ? rgb(viridis(value)) : cssColour("grid");
        ctx.fillRect(
            box.stripLeft,
            y,
            box.stripWidth,
            Math.round(box.top + (q + 1) * box.cell) - y + CELL_LAP,
        );
    }
    ctx.save();
    ctx.translate(box.stripLeft + box.stripWidth / 2, box.top - 4);
    ctx.rotate(-Math.PI / 2);
    ctx.font = font(11, 600);
    ctx.fillStyle = cssColour("ink");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(spec.stripLabel || "gate", 0, 0);
    ctx.restore();
}

function mapReading(canvas, fig, spec, box) {
    const at = {q: 0, k: 0};
    const name = (i) => "“" + tokenText(spec.tokens[i], 24) + "” (" + i + ")";
    const say = () => {
        const value = spec.map[at.q * box.n + at.k];
        fig.readout.textContent =
            plain(spec.title, 60) +
            ": " +
            name(at.q) +
            " looks at " +
            name(at.k) +
            " with " +
            (isNumber(value) ? share(value) : "an unknown weight") +
            (spec.strip ? "; mean gate " + share(spec.strip[at.q]) : "");
    };
    canvas.addEventListener("pointermove", (event) => {
        const q = Math.floor((event.offsetY - box.top) / box.cell);
        const k = Math.floor((event.offsetX - box.left) / box.cell);
        if (q < 0 || q >= box.n || k < 0) return;
        [at.q, at.k] = [q, Math.min(k, q)];
        say();
    });
    canvas.addEventListener("keydown", (event) => {
        const move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
        if (!move) return;
        event.preventDefault();
        at.q = clamp(at.q + move[0], 0, box.n - 1);
        at.k = clamp(at.k + move[1], 0, at.q);
        say();
    });
}

/* base64 of bytes -> numbers in 0..1, or null when the text is not base64 of exactly `size` bytes. */
function unpackBytes(text, size) {
    if (typeof text !== "string") return null;
    let raw;
    try {
        raw = atob(text);
    } catch {
        return null;
    }
    return raw.length === size ? Float64Array.from(raw, (c) => c.charCodeAt(0) / 255) : null;
}
