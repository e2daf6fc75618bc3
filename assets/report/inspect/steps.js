/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of one run: when the sink appears. Curves over steps, and the layer x head map of every checkpoint, as
 * small multiples or one after the other. */
const OVER_STEPS = [
    ["First-token share", (i) => number(i, "f_attn_mean", "from_1"), share],
    ["Sink heads", (i) => number(i, "sink_heads"), count],
    ["M-Act", (i) => number(i, "m_act_mean"), (v) => significant(v, 3)],
    ["Loss", (i) => number(i, "loss", "loss"), (v) => fixed(v, 3)],
    ["Mean gate", (i) => number(i, "gate_mean"), share],
];

function stepsSection(page) {
    return section(
        "steps",
        "Over steps",
        "The same windows under every checkpoint of the run.",
        stepCurves(page),
        stepHeat(page),
        stepMultiples(page),
    );
}

function stepCurves(page) {
    return figure({
        id: "fig-steps",
        wide: true,
        title: "Measures over steps",
        draw: (host, fig) => {
            const box = el("div", {class: "multiples"});
            const csv = [["measure", "step", "value"]];
            host.append(box);
            for (const [title, of, format] of OVER_STEPS) {
                const points = page.items.map((m) => ({x: m.step, y: of(get(m.raw, "inspect"))}));
                if (!points.some((p) => isNumber(p.y))) continue;
                linePlot(box, fig, {
                    title,
                    label: title + " over steps",
                    series: [{label: title, style: seriesStyle(1), points, dots: true}],
                    height: 200,
                    x: {label: "step"},
                    y: {label: title, zero: title !== "Loss", format},
                });
                csv.push(...points.map((p) => [title, p.x, p.y]));
            }
            return {csv};
        },
    });
}

const stepShare = (m) => headPanel(m, HEAD_MEASURES[0]);

/* One checkpoint at a time, with a slider and a button that runs through them. */
function stepHeat(page) {
    let fig;
    let timer = null;
    const slider = el("input", {
        type: "range",
        min: 0,
        max: page.items.length - 1,
        value: page.items.length - 1,
        "aria-label": "Checkpoint",
        oninput: () => {
            fig.values.at = Number(slider.value);
            figureDraw(fig);
        },
    });
    const stop = () => {
        clearInterval(timer);
        timer = null;
        button.textContent = "▶ Play";
    };
    const next = () => {
        slider.value = String((Number(slider.value) + 1) % page.items.length);
        fig.values.at = Number(slider.value);
        figureDraw(fig);
        if (fig.values.at === page.items.length - 1) stop();
    };
    const button = el(
        "button",
        {
            type: "button",
            class: "tool",
            onclick: () => {
                if (timer) return void stop();
                button.textContent = "❚❚ Stop";
                timer = setInterval(next, 700);
                return undefined;
            },
        },
        "▶ Play",
    );
    return figure({
        id: "fig-step-heads",
        wide: true,
        title: "Every head, checkpoint by checkpoint",
        caption: "First-token share, layers down, heads across.",
        controls: [
            (self) => {
                fig = self;
                self.values.at = page.items.length - 1;
                return el("span", {class: "control"}, button, " ", slider);
            },
        ],
        draw: (host, self) => {
            const m = page.items[self.values.at];
            heatGrid(host, self, {
                panels: [stepShare(m)],
                base: 0,
                tall: true,
                rowName: "",
                colName: "",
                max: 1,
                label: "First-token share by layer and head at " + m.name,
                format: (v) => fixed(v, 2),
                read: share,
            });
            return {};
        },
    });
}

const MULTIPLES = 12;

function stepMultiples(page) {
    const n = page.items.length;
    const shown =
        n <= MULTIPLES
            ? page.items
            : Array.from({length: MULTIPLES}, (_, i) => page.items[Math.round((i * (n - 1)) / (MULTIPLES - 1))]);
    return figure({
        id: "fig-step-multiples",
        wide: true,
        title: "When the sink appears",
        caption:
            "First-token share of every head" + (n > MULTIPLES ? ", " + MULTIPLES + " of " + n + " checkpoints." : "."),
        draw: (host, fig) => {
            heatGrid(host, fig, {
                panels: shown.map(stepShare),
                base: 0,
                rowName: "",
                colName: "",
                max: 1,
                label: "First-token share by layer and head, checkpoint by checkpoint",
                format: (v) => fixed(v, 2),
                read: share,
            });
            return {
                csv: [["step", "layer", "head", "first-token share"]].concat(
                    shown.flatMap((m) =>
                        stepShare(m).values.flatMap((row, l) => row.map((v, h) => [m.step, l, h, v])),
                    ),
                ),
            };
        },
    });
}
