/* SPDX-License-Identifier: Apache-2.0 */
/* What rounding to 8 bits would cost: inputs of the matrix products by layer, weights tensor by tensor. */
const INPUTS = [
    ["qkv", "into q, k, v"],
    ["o", "into the output projection"],
    ["up", "into the MLP"],
    ["down", "into its down projection"],
];
const hasRounding = (page) =>
    page.items.some((m) => list(m.raw, "weights").length || m.layers.some((l) => get(l, "int8_error")));

function roundingSection(page) {
    return section(
        "rounding",
        "Rounding to 8 bits",
        "Relative error |x − int8(x)| / |x| of symmetric rounding. One scale for a whole tensor suffers from every " +
            "outlier; one for each token or output channel does not.",
        inputErrors(page),
        weightTable(page),
    );
}

function inputErrors(page) {
    return figure({
        id: "fig-input-error",
        wide: true,
        title: "Activations",
        caption: "Inputs of matrix products by layer.",
        controls: [
            selectControl("scale", "Scale", [
                {label: "one for the tensor", value: "per_tensor"},
                {label: "one for each token", value: "per_token"},
            ]),
        ],
        draw: (host, fig) => {
            const models = shownModels(page);
            return layerPanels(host, fig, {
                models,
                panels: INPUTS.map(([key, title]) => ({
                    title: capital(title),
                    label: "Rounding error " + title,
                    series: modelSeries(models, (l) => number(l, "int8_error", key, fig.values.scale)),
                })),
                y: {label: "relative error", zero: true, format: (v) => significant(v, 3)},
                height: 200,
                what: "input",
                value: "error",
                why: "rounding of activations was not measured",
            });
        },
    });
}

const WORST = 12;

/* The tensors that bear a single scale worst; all of them in the CSV of each model. */
function weightTable(page) {
    return page.items
        .filter((m) => list(m.raw, "weights").length)
        .slice(0, 6)
        .map((m) => {
            const all = list(m.raw, "weights");
            const worst = [...all].sort((a, b) => b.per_tensor - a.per_tensor).slice(0, WORST);
            return dataTable({
                id: "tab-weights-" + m.index,
                label: "Weights, " + m.name,
                caption: "Weights that suffer most" + (page.items.length > 1 ? ": " + plain(m.name, 40) : ""),
                columns: [
                    {label: "Tensor"},
                    {label: "One scale", unit: "relative error"},
                    {label: "One for each row", unit: "relative error"},
                    {label: "Largest", unit: "× root mean square"},
                ],
                rows: worst.map((w) => ({
                    name: plain(w.name, 80),
                    note: list(w, "shape").join(" × "),
                    cells: [
                        {value: w.per_tensor, text: significant(w.per_tensor, 3)},
                        {value: w.per_channel, text: significant(w.per_channel, 3)},
                        {value: w.max_over_rms, text: significant(w.max_over_rms, 3)},
                    ],
                })),
                note:
                    "Of " + all.length + " matrices; mean " + significant(mean(all.map((w) => w.per_tensor)), 3) +
                    " with one scale, " + significant(mean(all.map((w) => w.per_channel)), 3) + " with one for each row.",
            });
        });
}
