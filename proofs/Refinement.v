(** Refining a schedule: trading rounds within a step for steps.

    A schedule is a list of steps; a step takes [rounds] >= 1 rounds, and in it
    each link (u, v) passes at most [rounds * cap u v] messages, all of which read
    the state before the step.  (With cap = 1: at most as many messages per link
    as the step has rounds.)

    From a schedule with S steps and R rounds in all, there is one with S' steps
    and R rounds for each S' with S <= S' <= R.  It has the same messages and
    delivers at least as much: what is feasible with S steps and R rounds is
    feasible with S' steps and R rounds.

    Ranks store and keep (the knowledge model): this covers AllGather, Broadcast,
    Scatter, Gather, AllToAll.  A schedule that overwrites or reduces in place may
    need its order of reads and writes within a step, and is not covered. *)

From Coq Require Import List Arith Lia Bool Permutation.
From Algocc Require Import Counting Knowledge.
Import ListNotations.

Section Refinement.
  Context {item : Type}.
  Variable cap : nat -> nat -> nat.

  Record phase := Phase { rounds : nat; sends : list (message item) }.

  Definition on_link (u v : nat) (m : message item) : bool :=
    (sender m =? u) && (receiver m =? v).

  Definition fits (p : phase) : Prop :=
    1 <= rounds p /\
    forall u v, count (on_link u v) (sends p) <= rounds p * cap u v.

  Definition total_rounds (ps : list phase) : nat := list_sum (map rounds ps).
  Lemma total_rounds_cons p ps : total_rounds (p :: ps) = rounds p + total_rounds ps.
  Proof. reflexivity. Qed.

  Definition all_sends (ps : list phase) : list (message item) := concat (map sends ps).
  Definition result (K : knowledge item) (ps : list phase) : knowledge item :=
    in_rounds K (map sends ps).

  (** ** Splitting the messages of a step: fill the first round, keep the rest *)

  Definition fill (m : message item) (ab : list (message item) * list (message item)) :=
    let (a, b) := ab in
    if count (on_link (sender m) (receiver m)) a <? cap (sender m) (receiver m)
    then (m :: a, b) else (a, m :: b).

  Definition split (ms : list (message item)) := fold_right fill ([], []) ms.

  Lemma split_permutation ms : Permutation ms (fst (split ms) ++ snd (split ms)).
  Proof.
    induction ms as [|m ms IH]; [constructor|]. cbn [split fold_right].
    fold (split ms). unfold fill. destruct (split ms) as [a b]. cbn [fst snd] in *.
    destruct (_ <? _); cbn [fst snd].
    - cbn. constructor. assumption.
    - apply Permutation_cons_app. assumption.
  Qed.

  (** The first part takes at most [cap] per link; if anything is left over for a
      link, it takes just [cap]. *)
  Lemma split_counts ms u v :
    count (on_link u v) (fst (split ms)) <= cap u v /\
    (count (on_link u v) (snd (split ms)) = 0 \/ count (on_link u v) (fst (split ms)) = cap u v).
  Proof.
    induction ms as [|m ms IH]; [cbn; split; [lia|auto]|].
    cbn [split fold_right]. fold (split ms). unfold fill. destruct (split ms) as [a b].
    cbn [fst snd] in *.
    destruct (Nat.ltb_spec (count (on_link (sender m) (receiver m)) a) (cap (sender m) (receiver m)))
      as [Hlt|Hge]; cbn [fst snd]; rewrite !count_cons;
      destruct (on_link u v m) eqn:E; try (split; [lia|tauto]);
      unfold on_link in E; apply andb_true_iff in E as [E1 E2];
      apply Nat.eqb_eq in E1; apply Nat.eqb_eq in E2; subst; lia.
  Qed.

  Lemma count_permutation (p : message item -> bool) l l' :
    Permutation l l' -> count p l = count p l'.
  Proof. induction 1; rewrite ?count_cons in *; lia. Qed.

  Lemma split_fits r ms :
    fits (Phase (S (S r)) ms) ->
    fits (Phase 1 (fst (split ms))) /\ fits (Phase (S r) (snd (split ms))).
  Proof.
    intros [_ H]. cbn [rounds sends] in H. split; split; cbn [rounds sends]; try lia; intros u v.
    - destruct (split_counts ms u v). lia.
    - specialize (H u v). destruct (split_counts ms u v) as [_ [E|E]]; [lia|].
      rewrite (count_permutation _ _ _ (split_permutation ms)), count_app in H. nia.
  Qed.

  (** Two steps with the messages of one deliver at least as much. *)
  Lemma split_delivers (K : knowledge item) ms :
    below (at_once K ms) (at_once (at_once K (fst (split ms))) (snd (split ms))).
  Proof.
    set (a := fst (split ms)). set (b := snd (split ms)).
    intros r i H. unfold at_once at 1 in H. apply orb_true_iff in H as [H|H].
    - apply at_once_grows, at_once_grows, H.
    - apply existsb_exists in H as (m & Hm & Ht).
      apply (Permutation_in _ (split_permutation ms)) in Hm.
      apply in_app_or in Hm as [Hm|Hm].
      + apply at_once_grows. unfold at_once. apply orb_true_iff. right.
        apply existsb_exists. eauto.
      + unfold at_once at 1. apply orb_true_iff. right.
        apply existsb_exists. exists m. split; [assumption|].
        apply tells_mono with K; [apply at_once_grows|assumption].
  Qed.

  (** ** One more step *)

  Lemma one_more_step ps :
    Forall fits ps -> length ps < total_rounds ps ->
    exists ps', length ps' = S (length ps) /\ total_rounds ps' = total_rounds ps /\
      Forall fits ps' /\ Permutation (all_sends ps) (all_sends ps') /\
      forall K, below (result K ps) (result K ps').
  Proof.
    induction ps as [|[r ms] ps IH]; intros F L; [cbn in L; lia|].
    inversion_clear F as [|? ? Fp Fps].
    destruct r as [|[|r]].
    - destruct Fp as [Fp _]. cbn in Fp. lia.
    - rewrite total_rounds_cons in *. cbn [rounds length] in L |- *.
      destruct IH as (ps' & L' & R' & F' & P' & B'); [assumption|lia|].
      exists (Phase 1 ms :: ps'). rewrite total_rounds_cons. cbn [rounds length].
      split; [lia|]. split; [lia|]. split; [constructor; assumption|]. split.
      + unfold all_sends in *. cbn [map concat sends]. apply Permutation_app_head, P'.
      + intros K. apply B'.
    - destruct (split_fits r ms Fp) as [F1 F2].
      exists (Phase 1 (fst (split ms)) :: Phase (S r) (snd (split ms)) :: ps).
      rewrite !total_rounds_cons. cbn [rounds length].
      split; [reflexivity|]. split; [lia|]. split; [repeat (constructor; try assumption)|].
      split.
      + unfold all_sends. cbn [map concat sends]. rewrite app_assoc.
        apply Permutation_app_tail, split_permutation.
      + intros K. apply (in_rounds_mono (map sends ps)), split_delivers.
  Qed.

  (** Refinement: each number of steps between S and R will do. *)
  Theorem refinement ps steps :
    Forall fits ps -> length ps <= steps <= total_rounds ps ->
    exists ps', length ps' = steps /\ total_rounds ps' = total_rounds ps /\
      Forall fits ps' /\ Permutation (all_sends ps) (all_sends ps') /\
      forall K, below (result K ps) (result K ps').
  Proof.
    intros F [H1 H2]. remember (steps - length ps) as extra eqn:E.
    revert ps F H1 H2 E. induction extra as [|extra IH]; intros ps F H1 H2 E.
    - exists ps. repeat split; try assumption; try lia; [reflexivity|intros; apply below_refl].
    - destruct (one_more_step ps F) as (ps1 & L1 & R1 & F1 & P1 & B1); [lia|].
      destruct (IH ps1 F1) as (ps2 & L2 & R2 & F2 & P2 & B2); try lia.
      exists ps2. split; [assumption|]. split; [lia|]. split; [assumption|]. split.
      + apply Permutation_trans with (all_sends ps1); assumption.
      + intros K. apply below_trans with (result K ps1); auto.
  Qed.
End Refinement.

Print Assumptions refinement.
