(** Lower bounds on the volume, for every program of the machine.

    A program here is any list of steps, synchronous or one message at a time,
    with any local copies and reductions, any scratch locations, and messages
    that may even mix chunks.  All messages carry one chunk, so the numbers of
    messages below are volumes in units of a chunk. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge Machine Gossip.
Import ListNotations.

(** In the beginning every rank has inputs of its own only. *)
Definition private (s : state) : Prop := forall r l x, In x (s r l) -> fst x = r.

(** [holds P s r]: rank [r] has a location whose inputs all satisfy [only], and
    that contains all those that satisfy [all].  Multiplicities are left open, so
    the bounds hold for idempotent operators too. *)
Definition holds (s : state) (r : nat) (only : input -> bool) (all : input -> Prop) : Prop :=
  exists l, pure only (s r l) /\ forall x, all x -> In x (s r l).

(** Rank [r] has chunk [c] reduced over the ranks [0 .. n-1]. *)
Definition holds_reduced (n : nat) (s : state) (r c : nat) : Prop :=
  holds s r (fun x => snd x =? c) (fun x => exists i, i < n /\ x = (i, c)).

(** Rank [r] has the input [x], unreduced. *)
Definition is_input (x y : input) : bool := (fst y =? fst x) && (snd y =? snd x).
Definition holds_input (s : state) (r : nat) (x : input) : Prop :=
  holds s r (is_input x) (fun y => y = x).

Lemma is_input_spec x y : is_input x y = true <-> y = x.
Proof.
  unfold is_input. rewrite andb_true_iff, !Nat.eqb_eq.
  destruct x, y; cbn. split; [intros []|intros [=]]; subst; auto.
Qed.

(** The first input in a value says what a pure value is about. *)
Definition first (pk : packet) : input := hd (0, 0) (snd pk).
Definition nonempty (pk : packet) : bool := match snd pk with [] => false | _ => true end.

Lemma head_about_first about pk :
  head_about about (snd pk) = nonempty pk && about (first pk).
Proof. unfold nonempty, first. destruct (snd pk); reflexivity. Qed.

Definition mine : knowledge input := fun r x => fst x =? r.

Lemma covers_private about s : private s -> covers about s mine.
Proof. intros H r l _ x Hx. apply Nat.eqb_eq, (H r l), Hx. Qed.

(** What [holds] says about the messages that are about it. *)
Lemma holds_known only all s steps r x :
  private s -> holds (run s steps) r only all -> all x ->
  in_sequence mine (about_messages only (packets s steps)) r x = true.
Proof.
  intros H0 (l & Hp & Hall) Hx.
  apply (covers_run only steps s mine (covers_private only s H0) r l Hp), Hall, Hx.
Qed.

(** ** AllReduce *)

(** Every program that completes AllReduce of m chunks on n ranks has at least
    2(n-1)m messages. *)
Theorem all_reduce_messages n m s steps :
  private s ->
  (forall r c, r < n -> c < m -> holds_reduced n (run s steps) r c) ->
  2 * (n - 1) * m <= messages steps.
Proof.
  intros H0 H1. set (pks := packets s steps).
  (* each chunk needs its own 2(n-1) messages *)
  assert (Each : forall c, c < m ->
            2 * (n - 1) <= count (fun pk => nonempty pk && (snd (first pk) =? c)) pks).
  { intros c Hc. set (about := fun x : input => snd x =? c).
    apply Nat.le_trans with (length (about_messages about pks)).
    - apply (gossip n (fun i => (i, c)) mine).
      + intros i _ r H. apply Nat.eqb_eq in H. auto.
      + intros r i Hr Hi.
        apply (holds_known about (fun x => exists i, i < n /\ x = (i, c))); [assumption| |eauto].
        apply H1; assumption.
    - unfold about_messages. rewrite map_length.
      change (count (fun pk => head_about about (snd pk)) pks <=
              count (fun pk => nonempty pk && (snd (first pk) =? c)) pks).
      apply count_imp. intros pk _. rewrite head_about_first. auto. }
  apply Nat.le_trans with (sum (fun _ => 2 * (n - 1)) m).
  { rewrite sum_const. lia. }
  apply Nat.le_trans with (sum (fun c => count (fun pk => nonempty pk && (snd (first pk) =? c)) pks) m).
  { apply sum_le, Each. }
  rewrite sum_counts_le. etransitivity; [apply count_le_length|].
  unfold pks, messages, count. rewrite <- (packets_transfers steps s), map_length. reflexivity.
Qed.

(** So some rank sends, and some rank receives, at least 2(n-1)/n of the vector. *)
Corollary all_reduce_volume n m s steps :
  1 <= n -> among n steps -> private s ->
  (forall r c, r < n -> c < m -> holds_reduced n (run s steps) r c) ->
  (exists r, r < n /\ 2 * (n - 1) * m <= n * sent r steps) /\
  (exists r, r < n /\ 2 * (n - 1) * m <= n * received r steps).
Proof.
  intros Hn Ha H0 H1. pose proof (all_reduce_messages n m s steps H0 H1) as B.
  split.
  - rewrite <- (sum_sent n steps Ha) in B.
    destruct (some_at_least_average (fun r => sent r steps) n Hn) as (r & Hr & Hs).
    exists r; split; [assumption|lia].
  - rewrite <- (sum_received n steps Ha) in B.
    destruct (some_at_least_average (fun r => received r steps) n Hn) as (r & Hr & Hs).
    exists r; split; [assumption|lia].
Qed.

(** ** What a rank must receive *)

Lemma as_message_senders about pks r :
  In r (map sender (about_messages about pks)) ->
  exists pk, In pk pks /\ src (fst pk) = r /\ nonempty pk = true /\ about (first pk) = true.
Proof.
  unfold about_messages. rewrite map_map. intros H. apply in_map_iff in H as (pk & <- & H).
  apply filter_In in H as [H E]. rewrite head_about_first, andb_true_iff in E. exists pk. tauto.
Qed.

Lemma as_message_receivers about pks r :
  In r (map receiver (about_messages about pks)) ->
  exists pk, In pk pks /\ dst (fst pk) = r /\ nonempty pk = true /\ about (first pk) = true.
Proof.
  unfold about_messages. rewrite map_map. intros H. apply in_map_iff in H as (pk & <- & H).
  apply filter_In in H as [H E]. rewrite head_about_first, andb_true_iff in E. exists pk. tauto.
Qed.

(** A rank receives at least as many chunks as it must hold inputs of others. *)
Theorem must_receive_inputs s steps r (xs : list input) :
  private s -> NoDup xs ->
  (forall x, In x xs -> fst x <> r /\ holds_input (run s steps) r x) ->
  length xs <= received r steps.
Proof.
  intros H0 nd H. unfold received.
  rewrite <- (count_packets (fun t => dst t =? r) s steps).
  apply (distinct_images first); [assumption|]. intros x Hx.
  destruct (H x Hx) as [Hne Hh].
  destruct (as_message_receivers (is_input x) (packets s steps) r) as (pk & Hpk & Hd & _ & Hf).
  { apply (must_receive r x _ mine); [apply Nat.eqb_neq; assumption|].
    apply (holds_known (is_input x) (fun y => y = x)); auto. }
  apply is_input_spec in Hf. rewrite <- Hf. apply in_map, filter_In. split; [assumption|].
  apply Nat.eqb_eq, Hd.
Qed.

(** With n >= 2, a rank receives at least as many chunks as it must hold reduced. *)
Theorem must_receive_chunks n s steps r (cs : list nat) :
  2 <= n -> private s -> NoDup cs ->
  (forall c, In c cs -> holds_reduced n (run s steps) r c) ->
  length cs <= received r steps.
Proof.
  intros Hn H0 nd H. unfold received.
  rewrite <- (count_packets (fun t => dst t =? r) s steps).
  apply (distinct_images (fun pk => snd (first pk))); [assumption|]. intros c Hc.
  set (i := if r =? 0 then 1 else 0).
  assert (Hi : i < n /\ i <> r) by (unfold i; destruct (Nat.eqb_spec r 0); lia).
  destruct (as_message_receivers (fun x => snd x =? c) (packets s steps) r)
    as (pk & Hpk & Hd & _ & Hf).
  { apply (must_receive r (i, c) _ mine); [apply Nat.eqb_neq; apply Hi|].
    apply (holds_known _ (fun x => exists i, i < n /\ x = (i, c)));
      [assumption|exact (H c Hc)|exists i; split; [apply Hi|reflexivity]]. }
  apply Nat.eqb_eq in Hf. rewrite <- Hf.
  apply (in_map (fun pk => snd (first pk))), filter_In. split; [assumption|].
  apply Nat.eqb_eq, Hd.
Qed.

(** ** What a rank must send *)

(** A rank sends at least as many chunks as others must hold reduced over it. *)
Theorem must_send_chunks n s steps i (home : nat -> nat) (cs : list nat) :
  i < n -> private s -> NoDup cs ->
  (forall c, In c cs -> home c <> i /\ holds_reduced n (run s steps) (home c) c) ->
  length cs <= sent i steps.
Proof.
  intros Hi H0 nd H. unfold sent.
  rewrite <- (count_packets (fun t => src t =? i) s steps).
  apply (distinct_images (fun pk => snd (first pk))); [assumption|]. intros c Hc.
  destruct (H c Hc) as [Hne Hh].
  destruct (as_message_senders (fun x => snd x =? c) (packets s steps) i) as (pk & Hpk & Hd & _ & Hf).
  { apply (must_send i (i, c) _ mine) with (home c); [| |assumption].
    - intros q Hq. apply Nat.eqb_eq in Hq. auto.
    - apply (holds_known _ (fun x => exists i, i < n /\ x = (i, c))); eauto. }
  apply Nat.eqb_eq in Hf. rewrite <- Hf.
  apply (in_map (fun pk => snd (first pk))), filter_In. split; [assumption|].
  apply Nat.eqb_eq, Hd.
Qed.

(** A rank sends at least as many chunks as others must hold inputs of it. *)
Theorem must_send_inputs s steps i (holder : input -> nat) (xs : list input) :
  private s -> NoDup xs ->
  (forall x, In x xs -> fst x = i /\ holder x <> i /\ holds_input (run s steps) (holder x) x) ->
  length xs <= sent i steps.
Proof.
  intros H0 nd H. unfold sent.
  rewrite <- (count_packets (fun t => src t =? i) s steps).
  apply (distinct_images first); [assumption|]. intros x Hx.
  destruct (H x Hx) as (Ho & Hne & Hh).
  destruct (as_message_senders (is_input x) (packets s steps) i) as (pk & Hpk & Hd & _ & Hf).
  { apply (must_send i x _ mine) with (holder x); [| |assumption].
    - intros q Hq. apply Nat.eqb_eq in Hq. congruence.
    - apply (holds_known (is_input x) (fun y => y = x)); auto. }
  apply is_input_spec in Hf. rewrite <- Hf. apply in_map, filter_In. split; [assumption|].
  apply Nat.eqb_eq, Hd.
Qed.

(** ** Scatter, Gather and AllToAll *)

(** The block of rank i for rank r is its input chunks r*b + j, for j < b. *)
Definition for_rank (b r j : nat) : nat := r * b + j.

(** Scatter: the root sends at least (n-1)b chunks of n*b. *)
Theorem scatter_volume n b root s steps :
  root < n -> private s ->
  (forall r j, r < n -> j < b -> holds_input (run s steps) r (root, for_rank b r j)) ->
  (n - 1) * b <= sent root steps.
Proof.
  intros Hi H0 H.
  replace ((n - 1) * b) with (length (list_prod (others n root) (seq 0 b)))
    by (rewrite prod_length, others_length, seq_length; auto).
  rewrite <- (map_length (fun rj => (root, for_rank b (fst rj) (snd rj)))).
  apply must_send_inputs with s (fun x => snd x / b); [assumption| |].
  - apply NoDup_map_on; [|apply NoDup_pairs; [apply NoDup_others|apply seq_NoDup]].
    intros [r j] [r' j'] Hx Hy [= E].
    apply in_prod_iff in Hx as [_ Hj], Hy as [_ Hj']. apply in_seq in Hj, Hj'.
    unfold for_rank in E. cbn in E. assert (r = r') by nia. f_equal; nia.
  - intros x Hx. apply in_map_iff in Hx as ([r j] & <- & Hx). cbn [fst snd].
    apply in_prod_iff in Hx as [Hr Hj]. apply in_others in Hr. apply in_seq in Hj.
    assert (E : for_rank b r j / b = r).
    { unfold for_rank. symmetry. apply (Nat.div_unique _ _ _ j); lia. }
    rewrite E. split; [reflexivity|]. split; [apply Hr|]. apply H; lia.
Qed.

(** Gather: the root receives at least (n-1)b chunks of n*b.  Here rank q's chunks
    for the root may have any names, all different. *)
Theorem gather_volume n b (name : nat -> nat) root s steps :
  root < n -> private s ->
  (forall j j', j < b -> j' < b -> name j = name j' -> j = j') ->
  (forall q j, q < n -> j < b -> holds_input (run s steps) root (q, name j)) ->
  (n - 1) * b <= received root steps.
Proof.
  intros Hi H0 inj H.
  replace ((n - 1) * b) with (length (list_prod (others n root) (seq 0 b)))
    by (rewrite prod_length, others_length, seq_length; auto).
  rewrite <- (map_length (fun qj => (fst qj, name (snd qj)))).
  apply must_receive_inputs with s; [assumption| |].
  - apply NoDup_map_on; [|apply NoDup_pairs; [apply NoDup_others|apply seq_NoDup]].
    intros [q j] [q' j'] Hx Hy [= -> E].
    apply in_prod_iff in Hx as [_ Hj], Hy as [_ Hj']. apply in_seq in Hj, Hj'.
    f_equal. apply inj; [lia|lia|exact E].
  - intros x Hx. apply in_map_iff in Hx as ([q j] & <- & Hx). cbn [fst snd].
    apply in_prod_iff in Hx as [Hq Hj]. apply in_others in Hq. apply in_seq in Hj.
    split; [cbn; lia|]. apply H; lia.
Qed.

(** AllToAll: every rank sends, and receives, at least (n-1)b chunks of n*b. *)
Theorem all_to_all_volume n b s steps i :
  i < n -> private s ->
  (forall q r j, q < n -> r < n -> j < b -> holds_input (run s steps) r (q, for_rank b r j)) ->
  (n - 1) * b <= sent i steps /\ (n - 1) * b <= received i steps.
Proof.
  intros Hi H0 H. split.
  - apply scatter_volume with s; auto.
  - apply gather_volume with (for_rank b i) s; auto. unfold for_rank. lia.
Qed.

(** ** AllGather and Broadcast *)

(** AllGather of b chunks per rank, a vector of n*b chunks: every rank receives
    at least (n-1)b, the share (n-1)/n of the vector. *)
Theorem all_gather_volume n b s steps r :
  r < n -> private s ->
  (forall i c, i < n -> c < b -> holds_input (run s steps) r (i, c)) ->
  (n - 1) * b <= received r steps.
Proof. intros Hr H0 H. apply gather_volume with (fun j => j) s; auto. Qed.

(** Broadcast of m chunks: every rank but the root receives at least m. *)
Theorem broadcast_volume root m s steps r :
  r <> root -> private s ->
  (forall c, c < m -> holds_input (run s steps) r (root, c)) ->
  m <= received r steps.
Proof.
  intros Hr H0 H.
  rewrite <- (seq_length m 0), <- (map_length (pair root) (seq 0 m)).
  apply must_receive_inputs with s; [assumption| |].
  - apply NoDup_map_on; [|apply seq_NoDup]. intros ? ? _ _ [=]; assumption.
  - intros x Hx. apply in_map_iff in Hx as (c & <- & Hc). apply in_seq in Hc.
    split; [cbn; auto|]. apply H; lia.
Qed.

(** ... and the root sends at least m, if there is another rank. *)
Theorem broadcast_root_volume root m s steps r :
  r <> root -> private s ->
  (forall c, c < m -> holds_input (run s steps) r (root, c)) ->
  m <= sent root steps.
Proof.
  intros Hr H0 H.
  rewrite <- (seq_length m 0), <- (map_length (pair root) (seq 0 m)).
  apply must_send_inputs with s (fun _ => r); [assumption| |].
  - apply NoDup_map_on; [|apply seq_NoDup]. intros ? ? _ _ [=]; assumption.
  - intros x Hx. apply in_map_iff in Hx as (c & <- & Hc). apply in_seq in Hc.
    split; [reflexivity|]. split; [exact Hr|]. apply H; lia.
Qed.

(** ** ReduceScatter and Reduce *)

(** ReduceScatter of m chunks, chunk c to rank [home c]: every rank sends at
    least one chunk for each that is not its own. *)
Theorem reduce_scatter_volume n m (home : nat -> nat) s steps i :
  i < n -> private s ->
  (forall c, c < m -> holds_reduced n (run s steps) (home c) c) ->
  count (fun c => negb (home c =? i)) (seq 0 m) <= sent i steps.
Proof.
  intros Hi H0 H. apply must_send_chunks with (n := n) (s := s) (home := home); auto.
  - apply NoDup_filter_seq.
  - intros c Hc. apply filter_In in Hc as [Hc Hne]. apply in_seq in Hc.
    split; [|apply H; lia]. apply Nat.eqb_neq, negb_true_iff, Hne.
Qed.

Lemma count_block b n i :
  i < n -> 0 < b -> count (fun c => c / b =? i) (seq 0 (n * b)) = b.
Proof.
  intros Hi Hb.
  assert (G : forall n, count (fun c => c / b =? i) (seq 0 (n * b)) = if i <? n then b else 0).
  { clear n Hi. induction n as [|n IH]; [reflexivity|].
    replace (S n * b) with (n * b + b) by lia. rewrite seq_app, count_app, IH. cbn [Nat.add].
    assert (E : forall c, In c (seq (n * b) b) -> c / b = n).
    { intros c Hc. apply in_seq in Hc. symmetry. apply (Nat.div_unique _ _ _ (c - n * b)); lia. }
    destruct (Nat.eq_dec i n) as [->|ne].
    - rewrite count_all; [|intros c Hc; apply Nat.eqb_eq, E, Hc]. rewrite seq_length.
      destruct (Nat.ltb_spec n n), (Nat.ltb_spec n (S n)); lia.
    - rewrite count_none; [|intros c Hc; apply Nat.eqb_neq; rewrite E by assumption; auto].
      destruct (Nat.ltb_spec i n), (Nat.ltb_spec i (S n)); lia. }
  rewrite G. destruct (Nat.ltb_spec i n); lia.
Qed.

(** With b chunks for each rank, a vector of n*b chunks: at least (n-1)b, the
    share (n-1)/n of the vector. *)
Corollary reduce_scatter_volume_even n b s steps i :
  i < n -> private s ->
  (forall c, c < n * b -> holds_reduced n (run s steps) (c / b) c) ->
  (n - 1) * b <= sent i steps.
Proof.
  intros Hi H0 H. destruct (Nat.eq_dec b 0) as [->|]; [lia|].
  apply Nat.le_trans with (count (fun c => negb (c / b =? i)) (seq 0 (n * b))).
  - pose proof (count_negb (fun c => c / b =? i) (seq 0 (n * b))) as E.
    rewrite count_block, seq_length in E by lia. nia.
  - apply reduce_scatter_volume with (n := n) (s := s); assumption.
Qed.

(** Reduce of m chunks to a root: every rank but the root sends at least m. *)
Theorem reduce_volume n root m s steps i :
  i < n -> i <> root -> private s ->
  (forall c, c < m -> holds_reduced n (run s steps) root c) ->
  m <= sent i steps.
Proof.
  intros Hi Hne H0 H.
  pose proof (reduce_scatter_volume n m (fun _ => root) s steps i Hi H0 H) as B.
  rewrite count_all, seq_length in B; [assumption|].
  intros c _. apply negb_true_iff, Nat.eqb_neq. auto.
Qed.

(** ... and the root receives at least m, if there is another rank. *)
Theorem reduce_root_volume n root m s steps :
  2 <= n -> private s ->
  (forall c, c < m -> holds_reduced n (run s steps) root c) ->
  m <= received root steps.
Proof.
  intros Hn H0 H. rewrite <- (seq_length m 0).
  apply must_receive_chunks with n s; try assumption; [apply seq_NoDup|].
  intros c Hc. apply in_seq in Hc. apply H; lia.
Qed.

Print Assumptions all_reduce_messages.
Print Assumptions all_reduce_volume.
Print Assumptions must_receive_inputs.
Print Assumptions must_send_chunks.
Print Assumptions must_send_inputs.
Print Assumptions must_receive_chunks.
Print Assumptions scatter_volume.
Print Assumptions gather_volume.
Print Assumptions all_to_all_volume.
Print Assumptions all_gather_volume.
Print Assumptions broadcast_volume.
Print Assumptions broadcast_root_volume.
Print Assumptions reduce_scatter_volume.
Print Assumptions reduce_scatter_volume_even.
Print Assumptions reduce_volume.
Print Assumptions reduce_root_volume.
