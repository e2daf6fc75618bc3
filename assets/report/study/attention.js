/* SPDX-License-Identifier: Apache-2.0 */
/* Attention maps of one sentence: two arms beside each other, any layer and head, and all heads of one
 * arm at a glance. */

function attentionSection(study) {
    const with_ = study.arms.filter((arm) => arm.runs.some((run) => get(run.raw, "attention_map", "layers")));
    const sentence = with_
        .flatMap((arm) => arm.runs.map((run) => text(run.raw, "attention_map", "text")))
        .find(Boolean);
    return section(
        "attention",
        "Attention maps",
        [
            "Rows are queries, columns keys. A sink is a bright first column.",
            sentence ? [" The sentence: ", el("q", null, el("bdi", null, plain(sentence, 400)))] : null,
        ],
        leftOut(study),
        mapFigure(study, with_),
        headsFigure(study, with_),
    );
}

/* What the writer of a big page left to results.json. */
function leftOut(study) {
    return list(study.raw, "page", "left_out").map((note) => el("p", {class: "note"}, plain(note, 300)));
}

const mapHeads = (run) =>
    largest(list(run.raw, "attention_map", "layers").map((l) => (Array.isArray(l) ? l.length : 0))) || 0;

/* Indices of the layers that any run has maps of. */
function mapLayers(arms) {
    const found = arms.flatMap((a) =>
        a.runs.flatMap((r) =>
            list(r.raw, "attention_map", "layers").map((l, i) => (Array.isArray(l) ? i : null)),
        ),
    );
    return [...new Set(found.filter(isNumber))].sort((a, b) => a - b);
}

function armOptions(arms) {
    return arms.map((arm) => ({label: arm.name, value: arm.index}));
}

/* Seeds for which any arm has a map. */
function mapSeeds(study) {
    const with_ = new Set(
        study.arms.flatMap((a) =>
            a.runs.filter((r) => get(r.raw, "attention_map", "layers")).map((r) => r.seed),
        ),
    );
    return seedOptions(study).filter((option) => with_.has(option.value));
}

const runOfSeed = (arm, seed) => arm.runs.find((run) => run.seed === seed);

/* {tokens, map, strip, why} of one run, layer and head ("mean" over heads). */
function mapOf(run, layer, head) {
    const raw = run && get(run.raw, "attention_map");
    const tokens = list(raw, "tokens");
    const heads = list(raw, "layers", layer);
    if (!raw || !tokens.length)
        return {
            tokens: [],
            why: run && !run.ok ? "No map: the run " + run.status + "." : "No map of this seed.",
        };
    const maps = (head === "mean" ? heads : [heads[head]])
        .map((packed) => unpackBytes(packed, tokens.length ** 2))
        .filter(Boolean);
    if (!maps.length) return {tokens, why: "No map of this layer and head."};
    const map = Float64Array.from(maps[0], (_, i) => mean(maps.map((m) => m[i])));
    const gates = list(raw, "gate", layer);
    const rows = head === "mean" ? gates : [gates[head]];
    const strip = rows.some(Array.isArray)
        ? tokens.map((_, q) => mean(rows.map((row) => (Array.isArray(row) ? row[q] : null))))
        : null;
    return {tokens, map, strip};
}

function mapFigure(study, arms) {
    const heads = largest(arms.flatMap((a) => a.runs.map(mapHeads))) || 0;
    const left = arms.find((a) => a === study.baseline) || arms[0];
    const right = arms.find((a) => a !== left && a.gated) || arms.find((a) => a !== left) || left;
    const seeds = mapSeeds(study);
    return figure({
        id: "fig-attention",
        wide: true,
        title: "Attention map, two arms side by side",
        caption:
            "Attention weight of each query on each key, viridis from 0 (dark) to 1 (bright). The " +
            "strip beside a gated map is the mean gate score of each query on the same colours.",
        controls: arms.length
            ? [
                  selectControl("left", "Left", armOptions(arms), left.index),
                  selectControl("right", "Right", armOptions(arms), right.index),
                  selectControl("seed", "Seed", seeds),
                  selectControl(
                      "layer",
                      "Layer",
                      mapLayers(arms).map((i) => ({label: "layer " + (i + 1), value: i})),
                      largest(mapLayers(arms)),
                  ),
                  selectControl(
                      "head",
                      "Head",
                      [{label: "mean over heads", value: "mean"}].concat(
                          Array.from({length: heads}, (_, h) => ({label: "head " + (h + 1), value: h})),
                      ),
                  ),
                  checkControl("root", "bring out small weights", false),
              ]
            : [],
        draw: (host, fig) => {
            if (!arms.length) return {empty: whyNoRuns(study, "attention map")};
            const v = fig.values;
            const pair = el("div", {class: "pair"});
            const shown = v.left === v.right ? [v.left] : [v.left, v.right];
            host.append(pair);
            const wide = host.clientWidth;
            const width = wide >= 700 ? (wide - 24) / 2 : wide;
            const rows = [["arm", "query", "key", "weight"]];
            for (const index of shown) {
                const arm = study.arms[index];
                const found = mapOf(runOfSeed(arm, v.seed), v.layer, v.head);
                const where =
                    "layer " +
                    (v.layer + 1) +
                    ", " +
                    (v.head === "mean" ? "mean over heads" : "head " + (v.head + 1));
                tokenMap(
                    pair,
                    fig,
                    {
                        ...found,
                        note: firstKeyNote(found),
                        title: arm.name + " · " + where,
                        root: v.root,
                        stripLabel: "gate",
                        label: "Attention map of " + arm.name + ", " + where,
                    },
                    width,
                );
                if (found.map)
                    found.tokens.forEach((t, q) =>
                        found.tokens
                            .slice(0, q + 1)
                            .forEach((k, i) =>
                                rows.push([
                                    arm.name,
                                    q + " " + t,
                                    i + " " + k,
                                    Number(found.map[q * found.tokens.length + i].toFixed(4)),
                                ]),
                            ),
                    );
            }
            drawScale(host, v.root);
            return {csv: rows};
        },
    });
}

/* Attention on the first key over all queries but the first, which has no choice. */
function firstKeyNote({tokens, map}) {
    if (!map || tokens.length < 2) return null;
    return (
        "first key: " +
        share(mean(Array.from({length: tokens.length - 1}, (_, q) => map[(q + 1) * tokens.length]))) +
        " of the attention"
    );
}

/* The colour bar 0..1 of the maps. */
function drawScale(host, root) {
    const canvas = el("canvas", {class: "scale", "aria-hidden": "true"});
    const width = Math.min(260, host.clientWidth - 20);
    host.append(canvas);
    const {ctx} = canvasSize(canvas, width + 24, 28);
    for (let x = 0; x < width; x++) {
        ctx.fillStyle = rgb(viridis(root ? Math.sqrt(x / (width - 1)) : x / (width - 1)));
        ctx.fillRect(8 + x, 2, 1.5, 8);
    }
    ctx.fillStyle = cssColour("muted");
    ctx.font = font(11);
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const v of [0, 0.25, 0.5, 0.75, 1]) ctx.fillText(String(v), 8 + v * width, 14);
}

/* Thumbnails of every head, at most this many layers: evenly spread ones where a model is deeper. */
const THUMB_LAYERS = 12;
const THUMB_GAP = 6;

function headsFigure(study, arms) {
    const heads = largest(arms.flatMap((a) => a.runs.map(mapHeads))) || 0;
    const few = arms.length > 1 && heads * arms.length <= 16;
    return figure({
        id: "fig-attention-heads",
        wide: true,
        title: "All heads at a glance",
        caption:
            "One thumbnail per layer (down) and head (across), colours as above. A bright left " +
            "edge is a sink head.",
        controls: arms.length
            ? [
                  selectControl(
                      "arm",
                      "Arm",
                      (few ? [{label: "all arms", value: "all"}] : []).concat(armOptions(arms)),
                  ),
                  selectControl("seed", "Seed", mapSeeds(study)),
              ]
            : [],
        draw: (host, fig) => {
            if (!arms.length) return {empty: whyNoRuns(study, "attention map")};
            const chosen = fig.values.arm === "all" ? arms : [study.arms[fig.values.arm]];
            const box = el("div", {class: "pair"});
            const parts = chosen.map((arm) => thumbPart(arm, fig.values.seed)).filter((p) => p.heads);
            if (!parts.length) return {empty: "no run of this seed has an attention map"};
            host.append(box);
            const across = parts.reduce((n, p) => n + p.heads, 0);
            const size = clamp(
                Math.floor((host.clientWidth - parts.length * 54) / across) - THUMB_GAP,
                14,
                124,
            );
            for (const part of parts) drawThumbnails(box, part, size);
            const step = largest(parts.map((p) => p.step));
            if (step > 1)
                fig.readout.textContent =
                    "Layers shown: " + parts[0].layers.map((l) => l + 1).join(", ") + ".";
            return {};
        },
    });
}

/* What of an arm's run is drawn: {name, run, heads, n tokens, layers (indices), step}. */
function thumbPart(arm, seed) {
    const run = runOfSeed(arm, seed);
    const raw = run && get(run.raw, "attention_map");
    const all = list(raw, "layers")
        .map((l, i) => (Array.isArray(l) ? i : null))
        .filter(isNumber);
    const step = Math.max(1, Math.ceil(all.length / THUMB_LAYERS));
    const layers = all.filter((_, i) => (all.length - 1 - i) % step === 0);
    return {
        name: arm.name,
        run,
        heads: run && list(raw, "tokens").length ? mapHeads(run) : 0,
        n: list(raw, "tokens").length,
        step,
        layers,
    };
}

function drawThumbnails(host, part, size) {
    const left = 30;
    const top = 40;
    const pitch = size + THUMB_GAP;
    const canvas = el("canvas", {
        role: "img",
        "aria-label": plain("Attention maps of all heads of " + part.name),
    });
    host.append(canvas);
    const {ctx, width} = canvasSize(canvas, left + part.heads * pitch, top + part.layers.length * pitch);
    ctx.font = font(12, 600);
    ctx.fillStyle = cssColour("ink");
    ctx.fillText(fitText(ctx, plain(part.name), width - left), left, 12);
    ctx.font = font(11);
    ctx.fillStyle = cssColour("muted");
    ctx.textAlign = "center";
    for (let h = 0; h < part.heads; h += Math.max(1, Math.ceil(26 / pitch)))
        ctx.fillText("H" + (h + 1), left + h * pitch + size / 2, 31);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    part.layers.forEach((layer, r) => {
        const y = top + r * pitch;
        ctx.fillStyle = cssColour("muted");
        if (r % Math.max(1, Math.ceil(12 / pitch)) === 0)
            ctx.fillText("L" + (layer + 1), left - 6, y + size / 2);
        for (let h = 0; h < part.heads; h++) {
            ctx.fillStyle = cssColour("grid");
            ctx.fillRect(left + h * pitch, y, size, size);
            const found = unpackBytes(
                get(part.run.raw, "attention_map", "layers", layer, h),
                part.n * part.n,
            );
            if (found) drawThumbnail(ctx, found, part.n, left + h * pitch, y, size);
        }
    });
}

function drawThumbnail(ctx, map, n, x0, y0, size) {
    const cell = size / n;
    for (let q = 0; q < n; q++)
        for (let k = 0; k <= q; k++) {
            ctx.fillStyle = rgb(viridis(map[q * n + k]));
            const x = Math.round(x0 + k * cell);
            const y = Math.round(y0 + q * cell);
            ctx.fillRect(
                x,
                y,
                Math.round(x0 + (k + 1) * cell) - x + CELL_LAP,
                Math.round(y0 + (q + 1) * cell) - y + CELL_LAP,
            );
        }
}
