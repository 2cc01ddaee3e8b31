(** The ring algorithms, for every number of ranks.

    Rank r passes chunks to its neighbour r+1.
    ReduceScatter: in step t, rank r sends chunk (r - t) mod n and the neighbour
    reduces it into its own copy; after n-1 steps rank r holds chunk (r+1) mod n
    reduced over all ranks.
    AllGather: in step t, rank r sends chunk (r + 1 - t) mod n and the neighbour
    overwrites its copy; after n-1 steps everybody holds every chunk that was at
    its home, chunk (r+1) mod n at rank r, in the beginning.
    AllReduce: the one, then the other.

    Correct means: each output chunk holds the contribution of every rank exactly
    once (a permutation of the list of all contributions). *)

From Coq Require Import List Arith Lia Bool Permutation.
From Algocc Require Import Counting Remainders Machine.
Import ListNotations.

(** ** The rules *)

(** Every rank [r] sends chunk [f r] to its neighbour, who reduces or overwrites. *)
Definition pass_on (n : nat) (f : nat -> nat) (red : bool) : list transfer :=
  map (fun r => Transfer r (f r) ((r + 1) mod n) (f r) red) (seq 0 n).

(** For t <= n, (r - t) mod n is written (r + n - t) mod n. *)
Definition rs_chunk (n t r : nat) : nat := (r + n - t) mod n.
Definition ag_chunk (n t r : nat) : nat := (r + 1 + n - t) mod n.

Definition ring_reduce_scatter (n : nat) : list (list transfer) :=
  map (fun t => pass_on n (rs_chunk n t) true) (seq 0 (n - 1)).
Definition ring_all_gather (n : nat) : list (list transfer) :=
  map (fun t => pass_on n (ag_chunk n t) false) (seq 0 (n - 1)).
Definition ring_all_reduce (n : nat) : list (list transfer) :=
  ring_reduce_scatter n ++ ring_all_gather n.

(** In the beginning, rank r's chunk c holds its own contribution only. *)
Definition own_inputs : state := fun r c => [(r, c)].

(** What the reduced chunk [c] must hold: each rank's contribution once. *)
Definition all_contributions (n c : nat) : value := map (fun r => (r, c)) (seq 0 n).

(** The chunk that ReduceScatter completes at rank [r]. *)
Definition home_chunk (n r : nat) : nat := (r + 1) mod n.

(** The neighbour from which [q] receives. *)
Definition left_of (n q : nat) : nat := (q + n - 1) mod n.

(** How far rank [r] is from rank [c], along the ring. *)
Definition hops (n r c : nat) : nat := (r + n - c) mod n.

Ltac mods :=
  unfold rs_chunk, ag_chunk, home_chunk, left_of, hops in *; small_mods.

(** ** One step of a ring *)

Lemma pass_on_destinations n f red :
  NoDup (map (fun t => (dst t, dst_loc t)) (pass_on n f red)).
Proof.
  unfold pass_on. rewrite map_map; cbn. apply NoDup_map_on; [|apply seq_NoDup].
  intros x y Hx Hy E. apply in_seq in Hx, Hy. injection E as E _. revert E. mods.
Qed.

Lemma pass_on_spec n f red s q c :
  q < n ->
  step s (pass_on n f red) q c =
    if c =? f (left_of n q)
    then (if red then s q c ++ s (left_of n q) c else s (left_of n q) c)
    else s q c.
Proof.
  intros Hq. assert (Hl : left_of n q < n) by (apply Nat.mod_upper_bound; lia).
  destruct (Nat.eqb_spec c (f (left_of n q))) as [->|ne].
  - set (r := left_of n q) in *.
    assert (Hr : (r + 1) mod n = q) by (unfold r in *; mods).
    pose proof (step_written s (pass_on n f red) (Transfer r (f r) ((r + 1) mod n) (f r) red)
                  (pass_on_destinations n f red)) as W.
    cbn in W. rewrite Hr in W. apply W. unfold pass_on.
    rewrite <- Hr. apply (in_map (fun r => Transfer r (f r) ((r + 1) mod n) (f r) red)).
    apply in_seq; lia.
  - apply step_unwritten. intros t Ht. unfold pass_on in Ht.
    apply in_map_iff in Ht as (r & <- & Hr). apply in_seq in Hr. cbn.
    intros E. injection E as E1 E2. apply ne. rewrite <- E2. f_equal.
    unfold left_of. rewrite <- E1. mods.
Qed.

(** ** ReduceScatter *)

(** The contributions that chunk [c] has gathered when it has travelled [d] hops
    and arrived at [r]: those of r, r-1, ..., r-d. *)
Definition gathered (n d r c : nat) : value :=
  map (fun j => ((r + n - j) mod n, c)) (seq 0 (S d)).

Lemma gathered_S n d r c :
  r < n -> S d < n ->
  gathered n (S d) r c = (r, c) :: gathered n d (left_of n r) c.
Proof.
  intros Hr Hd. unfold gathered.
  change (seq 0 (S (S d))) with (0 :: seq 1 (S d)).
  rewrite <- seq_shift. cbn [map]. rewrite map_map. f_equal.
  - f_equal. mods.
  - apply map_ext_in. intros j Hj. apply in_seq in Hj.
    f_equal. mods.
Qed.

Lemma ring_reduce_scatter_after n t :
  t < n -> forall r c, r < n -> c < n ->
  run own_inputs (map (fun t => pass_on n (rs_chunk n t) true) (seq 0 t)) r c =
    if hops n r c <=? t then gathered n (hops n r c) r c else [(r, c)].
Proof.
  induction t as [|t IH]; intros Ht r c Hr Hc.
  - cbn. destruct (Nat.leb_spec (hops n r c) 0) as [H0|]; [|reflexivity].
    replace (hops n r c) with 0 by lia. unfold gathered; cbn.
    unfold own_inputs. repeat f_equal. mods.
  - rewrite seq_S, map_app. unfold run. rewrite fold_left_app. cbn [map fold_left Nat.add].
    fold (run own_inputs (map (fun t => pass_on n (rs_chunk n t) true) (seq 0 t))).
    specialize (IH ltac:(lia)). rewrite pass_on_spec by assumption.
    assert (Hl : left_of n r < n) by (apply Nat.mod_upper_bound; lia).
    rewrite !IH by assumption.
    assert (Hh : hops n r c < n) by (apply Nat.mod_upper_bound; lia).
    destruct (Nat.eqb_spec c (rs_chunk n t (left_of n r))) as [e|ne].
    + assert (E : hops n r c = S t) by (mods).
      assert (E' : hops n (left_of n r) c = t) by (mods).
      rewrite E, E', Nat.leb_refl, (proj2 (Nat.leb_gt (S t) t)), Nat.leb_refl by lia.
      rewrite gathered_S by lia. reflexivity.
    + assert (E : hops n r c <> S t) by (mods).
      destruct (Nat.leb_spec (hops n r c) t), (Nat.leb_spec (hops n r c) (S t)); try lia; reflexivity.
Qed.

Lemma gathered_everything n r c :
  r < n -> Permutation (gathered n (n - 1) r c) (all_contributions n c).
Proof.
  intros Hr. unfold gathered, all_contributions.
  apply NoDup_Permutation_bis.
  - replace (S (n - 1)) with n by lia. apply NoDup_map_on; [|apply seq_NoDup].
    intros x y Hx Hy E. apply in_seq in Hx, Hy. injection E as E. revert E. mods.
  - rewrite !map_length, !seq_length. lia.
  - intros x Hx. apply in_map_iff in Hx as (j & <- & Hj).
    apply (in_map (fun o => (o, c))). apply in_seq.
    split; [lia|]. apply Nat.mod_upper_bound; lia.
Qed.

(** Ring ReduceScatter is correct for every n >= 1: rank r ends with chunk
    (r+1) mod n, which holds each rank's contribution exactly once. *)
Theorem ring_reduce_scatter_correct n r :
  r < n ->
  Permutation (run own_inputs (ring_reduce_scatter n) r (home_chunk n r))
              (all_contributions n (home_chunk n r)).
Proof.
  intros Hr.
  assert (Hc : home_chunk n r < n) by (apply Nat.mod_upper_bound; lia).
  unfold ring_reduce_scatter. rewrite ring_reduce_scatter_after by lia.
  assert (E : hops n r (home_chunk n r) = n - 1) by (mods).
  rewrite E, Nat.leb_refl. apply gathered_everything, Hr.
Qed.

(** ** AllGather *)

Lemma ring_all_gather_after n s (v : nat -> value) t :
  (forall r, r < n -> s r (home_chunk n r) = v (home_chunk n r)) ->
  t < n -> forall r c, r < n -> c < n -> (r + 1 + n - c) mod n <= t ->
  run s (map (fun t => pass_on n (ag_chunk n t) false) (seq 0 t)) r c = v c.
Proof.
  intros H0. induction t as [|t IH]; intros Ht r c Hr Hc Hd.
  - assert (E : c = home_chunk n r) by mods.
    cbn. rewrite E. apply H0, Hr.
  - rewrite seq_S, map_app. unfold run. rewrite fold_left_app. cbn [map fold_left Nat.add].
    fold (run s (map (fun t => pass_on n (ag_chunk n t) false) (seq 0 t))).
    specialize (IH ltac:(lia)). rewrite pass_on_spec by assumption.
    assert (Hl : left_of n r < n) by (apply Nat.mod_upper_bound; lia).
    destruct (Nat.eqb_spec c (ag_chunk n t (left_of n r))) as [e|ne].
    + apply IH; try assumption. clear IH Hl H0; mods.
    + apply IH; try assumption. clear IH Hl H0; mods.
Qed.

(** Ring AllGather is correct for every n >= 1: whatever value chunk c has at its
    home, every rank ends with exactly that value of chunk c. *)
Theorem ring_all_gather_correct n s (v : nat -> value) :
  (forall r, r < n -> s r (home_chunk n r) = v (home_chunk n r)) ->
  forall r c, r < n -> c < n -> run s (ring_all_gather n) r c = v c.
Proof.
  intros H0 r c Hr Hc. apply ring_all_gather_after; try assumption; [lia|].
  assert (H : (r + 1 + n - c) mod n < n) by (apply Nat.mod_upper_bound; lia). lia.
Qed.

(** ** AllReduce *)

(** Ring AllReduce is correct for every n >= 1: every rank's every chunk ends
    with each rank's contribution exactly once. *)
Theorem ring_all_reduce_correct n r c :
  r < n -> c < n ->
  Permutation (run own_inputs (ring_all_reduce n) r c) (all_contributions n c).
Proof.
  intros Hr Hc. unfold ring_all_reduce, run. rewrite fold_left_app.
  fold (run own_inputs (ring_reduce_scatter n)).
  set (s := run own_inputs (ring_reduce_scatter n)).
  fold (run s (ring_all_gather n)).
  set (v := fun c => s (left_of n c) c).
  rewrite (ring_all_gather_correct n s v); try assumption.
  - unfold v. set (h := left_of n c).
    assert (Hh : h < n) by (apply Nat.mod_upper_bound; lia).
    assert (E : c = home_chunk n h) by (unfold h in *; mods).
    rewrite E. apply ring_reduce_scatter_correct, Hh.
  - intros q Hq. unfold v. f_equal.
    assert (H : home_chunk n q < n) by (apply Nat.mod_upper_bound; lia).
    mods.
Qed.

(** All ranks end with the contributions to a chunk in the same order, so the
    results are equal for each associative operator, commutative or not.  (Lists
    keep the order, not the brackets; floating point would need these too.) *)
Theorem ring_all_reduce_same_everywhere n r r' c :
  r < n -> r' < n -> c < n ->
  run own_inputs (ring_all_reduce n) r c = run own_inputs (ring_all_reduce n) r' c.
Proof.
  intros Hr Hr' Hc. unfold ring_all_reduce, run. rewrite !fold_left_app.
  fold (run own_inputs (ring_reduce_scatter n)).
  set (s := run own_inputs (ring_reduce_scatter n)).
  fold (run s (ring_all_gather n)).
  set (v := fun c => s (left_of n c) c).
  assert (H0 : forall q, q < n -> s q (home_chunk n q) = v (home_chunk n q)).
  { intros q Hq. unfold v. f_equal.
    assert (H : home_chunk n q < n) by (apply Nat.mod_upper_bound; lia).
    mods. }
  rewrite !(ring_all_gather_correct n s v); auto.
Qed.

(** ** Steps and volume *)

Theorem ring_steps n :
  length (ring_reduce_scatter n) = n - 1 /\
  length (ring_all_gather n) = n - 1 /\
  length (ring_all_reduce n) = 2 * (n - 1).
Proof.
  unfold ring_all_reduce, ring_reduce_scatter, ring_all_gather.
  rewrite app_length, !map_length, !seq_length. lia.
Qed.

Lemma pass_on_sends_one n f red r :
  2 <= n -> r < n -> count (fun t => crosses t && (src t =? r)) (pass_on n f red) = 1.
Proof.
  intros Hn Hr. unfold pass_on. rewrite count_map.
  transitivity (count (fun q => q =? r) (seq 0 n)); [|apply count_one, Hr].
  apply count_ext. intros q Hq. apply in_seq in Hq. unfold crosses; cbn.
  replace (q =? (q + 1) mod n) with false; [reflexivity|].
  symmetry. apply Nat.eqb_neq. mods.
Qed.

Lemma pass_on_receives_one n f red r :
  2 <= n -> r < n -> count (fun t => crosses t && (dst t =? r)) (pass_on n f red) = 1.
Proof.
  intros Hn Hr. unfold pass_on. rewrite count_map.
  assert (Hl : left_of n r < n) by (apply Nat.mod_upper_bound; lia).
  transitivity (count (fun q => q =? left_of n r) (seq 0 n)); [|apply count_one, Hl].
  apply count_ext. intros q Hq. apply in_seq in Hq. unfold crosses; cbn.
  replace (q =? (q + 1) mod n) with false; [|symmetry; apply Nat.eqb_neq; mods].
  cbn. apply eq_true_iff_eq. rewrite !Nat.eqb_eq. mods.
Qed.

Lemma ring_each_step_one (p : transfer -> bool) n :
  (forall f red, count p (pass_on n f red) = 1) ->
  count p (concat (ring_reduce_scatter n)) = n - 1 /\
  count p (concat (ring_all_gather n)) = n - 1.
Proof.
  intros H. split; rewrite (count_concat p _ 1).
  1, 3: unfold ring_reduce_scatter, ring_all_gather; rewrite map_length, seq_length; lia.
  all: intros l Hl; apply in_map_iff in Hl as (t & <- & _); apply H.
Qed.

(** Every rank sends, and receives, n-1 chunks in ReduceScatter, n-1 in
    AllGather, and 2(n-1) in AllReduce; a chunk is 1/n of the vector. *)
Theorem ring_volume n r :
  r < n ->
  sent r (ring_reduce_scatter n) = n - 1 /\ received r (ring_reduce_scatter n) = n - 1 /\
  sent r (ring_all_gather n) = n - 1 /\ received r (ring_all_gather n) = n - 1 /\
  sent r (ring_all_reduce n) = 2 * (n - 1) /\ received r (ring_all_reduce n) = 2 * (n - 1).
Proof.
  intros Hr. unfold ring_all_reduce, sent, received. rewrite concat_app, !count_app.
  destruct (Nat.eq_dec n 1) as [->|]; [cbn; lia|].
  destruct (ring_each_step_one (fun t => crosses t && (src t =? r)) n) as [E1 E2].
  { intros; apply pass_on_sends_one; lia. }
  destruct (ring_each_step_one (fun t => crosses t && (dst t =? r)) n) as [E3 E4].
  { intros; apply pass_on_receives_one; lia. }
  lia.
Qed.

Lemma ring_among n : among n (ring_all_reduce n).
Proof.
  unfold among, ring_all_reduce. intros t Ht.
  apply in_concat in Ht as (ts & Hts & Ht).
  assert (E : exists f red, ts = pass_on n f red).
  { apply in_app_or in Hts as [H|H]; apply in_map_iff in H as (i & <- & _); eauto. }
  destruct E as (f & red & ->). apply in_map_iff in Ht as (r & <- & Hr).
  apply in_seq in Hr. cbn. split; [lia|]. apply Nat.mod_upper_bound; lia.
Qed.

Print Assumptions ring_reduce_scatter_correct.
Print Assumptions ring_all_gather_correct.
Print Assumptions ring_all_reduce_correct.
Print Assumptions ring_all_reduce_same_everywhere.
Print Assumptions ring_steps.
Print Assumptions ring_volume.
