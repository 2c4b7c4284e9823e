"""The strongest attacks on methods: U-LiRA with shadow models, and KLOM against retrained models, for both goals.

    python -m bench.attacks run cifar100-cnn --data DATA --method unweave --method scrub:official --out FOLDER
    python -m bench.attacks table FOLDER

`models` trains and unlearns, and keeps the margins of every model; `numbers` computes the attacks from them; `page`
makes the tables. A run resumes. `--share 2/8` does every eighth model, for eight processes side by side on one folder.
"""
