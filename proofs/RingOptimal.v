(** The ring algorithms move as little as possible, for every number of ranks:
    they meet the same specification as any rival, and no rival does better.

    A rival may cut the vector into any number m of chunks.  The ring cuts it
    into n, so "ring <= rival, as shares of the vector" reads
    ring / n <= rival / m, written here without division. *)

From Coq Require Import List Arith Lia Bool Permutation.
From Algocc Require Import Counting Machine Ring VolumeBounds.
Import ListNotations.

Lemma own_inputs_private : private own_inputs.
Proof. intros r l x [<-|[]]; reflexivity. Qed.

Lemma permutation_reduced n s r c l :
  Permutation (s r l) (all_contributions n c) -> holds_reduced n s r c.
Proof.
  intros P. exists l. split.
  - intros x Hx. apply (Permutation_in _ P) in Hx.
    apply in_map_iff in Hx as (i & <- & _). apply Nat.eqb_refl.
  - intros x (i & Hi & ->). apply (Permutation_in _ (Permutation_sym P)).
    apply (in_map (fun r => (r, c))), in_seq. lia.
Qed.

(** Ring AllReduce completes AllReduce of n chunks, each rank sends and receives
    2(n-1) chunks, and whichever program completes AllReduce of m chunks has a
    rank that sends, and a rank that receives, no smaller a share. *)
Theorem ring_all_reduce_optimal n :
  1 <= n ->
  (forall r c, r < n -> c < n -> holds_reduced n (run own_inputs (ring_all_reduce n)) r c) /\
  (forall r, r < n -> sent r (ring_all_reduce n) = 2 * (n - 1) /\
                      received r (ring_all_reduce n) = 2 * (n - 1)) /\
  (forall m s steps,
     among n steps -> private s ->
     (forall r c, r < n -> c < m -> holds_reduced n (run s steps) r c) ->
     (exists r, r < n /\ forall q, q < n -> sent q (ring_all_reduce n) * m <= n * sent r steps) /\
     (exists r, r < n /\ forall q, q < n -> received q (ring_all_reduce n) * m <= n * received r steps)).
Proof.
  intros Hn. split; [|split].
  - intros r c Hr Hc. apply permutation_reduced with c, ring_all_reduce_correct; assumption.
  - intros r Hr. pose proof (ring_volume n r Hr). tauto.
  - intros m s steps Ha H0 H1.
    destruct (all_reduce_volume n m s steps Hn Ha H0 H1) as [(r & Hr & B) (r' & Hr' & B')].
    split; [exists r|exists r']; split; try assumption; intros q Hq;
      destruct (ring_volume n q Hq) as (_ & _ & _ & _ & E & E'); rewrite ?E, ?E'; assumption.
Qed.

(** Ring ReduceScatter: rank i sends n-1 chunks of n; every program that
    scatters m chunks, b to each rank (m = n*b), makes rank i send no smaller a share. *)
Theorem ring_reduce_scatter_optimal n i b s steps :
  i < n ->
  (forall r, r < n -> holds_reduced n (run own_inputs (ring_reduce_scatter n)) r (home_chunk n r)) /\
  sent i (ring_reduce_scatter n) = n - 1 /\
  (private s -> (forall c, c < n * b -> holds_reduced n (run s steps) (c / b) c) ->
   sent i (ring_reduce_scatter n) * (n * b) <= n * sent i steps).
Proof.
  intros Hi. destruct (ring_volume n i Hi) as (E & _). split; [|split].
  - intros r Hr. apply permutation_reduced with (home_chunk n r), ring_reduce_scatter_correct, Hr.
  - exact E.
  - intros H0 H1. rewrite E. pose proof (reduce_scatter_volume_even n b s steps i Hi H0 H1). nia.
Qed.

(** At the start of ring AllGather rank r has its own input at its home chunk. *)
Definition one_input (n : nat) : state :=
  fun r c => if c =? home_chunk n r then [(r, 0)] else [].

(** Ring AllGather: every rank receives n-1 chunks of n; every program that
    gathers b chunks from each rank makes rank r receive no smaller a share. *)
Theorem ring_all_gather_optimal n r b s steps :
  r < n ->
  (forall i, i < n -> holds_input (run (one_input n) (ring_all_gather n)) r (i, 0)) /\
  received r (ring_all_gather n) = n - 1 /\
  (private s -> (forall i c, i < n -> c < b -> holds_input (run s steps) r (i, c)) ->
   received r (ring_all_gather n) * (n * b) <= n * received r steps).
Proof.
  intros Hr. destruct (ring_volume n r Hr) as (_ & _ & _ & E & _). split; [|split].
  - intros i Hi. exists (home_chunk n i).
    assert (Hh : home_chunk n i < n) by (apply Nat.mod_upper_bound; lia).
    rewrite (ring_all_gather_correct n _ (fun c => [(left_of n c, 0)])); try assumption.
    + replace (left_of n (home_chunk n i)) with i by mods. split.
      * intros x [<-|[]]. apply is_input_spec. reflexivity.
      * intros x ->. left; reflexivity.
    + intros q Hq. unfold one_input. rewrite Nat.eqb_refl. repeat f_equal. mods.
  - exact E.
  - intros H0 H1. rewrite E. pose proof (all_gather_volume n b s steps r Hr H0 H1). nia.
Qed.

Print Assumptions ring_all_reduce_optimal.
Print Assumptions ring_reduce_scatter_optimal.
Print Assumptions ring_all_gather_optimal.
