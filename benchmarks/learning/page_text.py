"""Text of docs/learning.md, around its tables."""

#: What differs between engines and nets although the settings are equal.
DIFFERS = (
    "First weights. Layers of Stable-Baselines3 begin orthogonal, or as PyTorch's own where the zoo sets"
    " `ortho_init: false`. Layers of rlcatalog begin with its default initialisers.",
    "Value loss. Stable-Baselines3 weighs the mean squared error and rlcatalog-ppo half of it, so rlcatalog-ppo gets"
    " twice the weight. On the easy tasks both have the weight 0.5, so the value of rlcatalog-ppo counts half.",
    "Normalisation. Stable-Baselines3 uses `VecNormalize`. rlcatalog-ppo uses `MeanStdFilter` for observations and"
    " `reward_scale` for rewards. Both clip at 10, and all evaluations use the statistics of training.",
    "MiniGrid. Nets of rlcatalog see the image and scale it by 1/255. The own net of Stable-Baselines3 sees it as 147"
    " numbers, because its convolutions do not fit into 7 x 7. The mission is left out for all: Stable-Baselines3"
    " supports no text, and the sentence never changes.",
    "Masks. MaskablePPO asks the environment for them. rlcatalog-ppo finds them in the observation.",
    "Memory. RepeatPreviousEasy compares nets of equal size, to 1 %. The LSTM of rlcatalog reads a dense layer; that"
    " of sb3-contrib reads the observation and is followed by a dense layer.",
    "SAC and TD3. With a trunk of rlcatalog, the first layer reads only the observation, and the action enters at the"
    " second. DQN has the same layers in both.",
)

TEXT = """# Learning under each engine

This page compares engines with equal hyperparameters, steps and seeds. Stable-Baselines3 and Ray RLlib train their
own network and the one that rlcatalog chooses. PPO of rlcatalog-ppo trains the network that rlcatalog chooses, and is
compared with the own network of Stable-Baselines3.

Each trained policy plays 50 episodes. Under PPO it samples its actions as in training. Under SAC, TD3 and DQN it takes
the most likely action. Tables show interquartile means over seeds with 95 % bootstrap intervals. A difference is paired
by seed and given in percent of the task's range, from random actions to the best return. The claim is that its lower
end is at least {mark} %. An interval that contains 0 and reaches below {mark} % is undecided; the table estimates the
seeds that would decide. Fewer than {fewest} seeds make no claim.

The probability of improvement follows Agarwal et al. (2021): the share of pairs of runs, of any seeds, in which
rlcatalog returns more. A tie counts half. Costs are CPU seconds of training for 1,000 steps, of the baseline and of
rlcatalog, with one thread.

## Tasks with published settings

{published_differences}

| task | engine | steps | seeds | baseline | rlcatalog | difference | better | cost |
|---|---|---|---|---|---|---|---|---|
{published}

Conclusions:

{conclusions}

The curves show the mean return of the last 100 training episodes. Lines are interquartile means over seeds, and bands
their 95 % intervals:

{published_curves}

### Published figures of the same tasks

Here the policy takes the most likely action, as in the published evaluations. Versions of environments and numbers of
steps differ where the last column names others. No published figure was found for RepeatPreviousEasy after 200,000
steps.

| task | steps | here | published | by |
|---|---|---|---|---|
{figures}

### Settings and sources

`value` is the weight of the mean squared error of the value. `decay` names what falls linearly to 0. `scaled` names
what is divided by its running deviation. `own` holds the arguments of the policy of Stable-Baselines3, and `model` or
`extractor` the model config of rlcatalog.

{settings}
What differs although the settings are equal:

{differs}

## Easy tasks

Settings here are our own, and the same for all engines.

{easy_differences}

| engine | task | steps | seeds | baseline | rlcatalog | difference | better |
|---|---|---|---|---|---|---|---|
{easy}

{easy_curves}

## Continue the comparison

```console
$ make compare                                # train what is missing, and write this page
$ make compare COMPARE_ARGS=--list            # what is missing
$ make compare COMPARE_ARGS=--required        # leave out the runs that come after all others
$ make compare COMPARE_ARGS=--unclaimed       # add the tasks that make no claim
$ make compare COMPARE_ARGS=--report          # only write this page
$ make compare COMPARE_ARGS='--try 4096'      # does each kind of run work here?
```

Each finished run is one line of `benchmarks/learning/results.jsonl`, with its settings, seed, versions and CPU time.
Stop the command at any time: finished runs are kept, and the same command goes on. A run that was stopped begins again;
Stable-Baselines3 cannot resume exactly, so no engine does. Two commands side by side never train the same run. The
command runs at the lowest priority and prints how to pause it. Policies of rlcatalog-ppo are saved in `runs/learning`.

Versions in the records:

{versions}
"""
