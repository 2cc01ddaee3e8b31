(** The round bounds, for programs of the machine.

    Ports count peers: in a step, whatever a rank sends to one peer, be it many
    chunks, is one message. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge Machine VolumeBounds Rounds.
Import ListNotations.

Definition pair_dec (x y : nat * nat) : {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.

(** The (sender, receiver) pairs of a step, each once. *)
Definition peers (ts : list transfer) : list (nat * nat) :=
  nodup pair_dec (map (fun t => (src t, dst t)) (filter crosses ts)).

(** In each step every rank sends to, or receives from, at most k others. *)
Definition steps_send (k : nat) (steps : list (list transfer)) : Prop :=
  forall ts, In ts steps -> forall r, count (fun p => fst p =? r) (peers ts) <= k.
Definition steps_receive (k : nat) (steps : list (list transfer)) : Prop :=
  forall ts, In ts steps -> forall r, count (fun p => snd p =? r) (peers ts) <= k.

(** The steps as rounds of the knowledge model: one message per pair, which may
    tell everything. *)
Definition bundle (p : nat * nat) : message nat := Message (fst p) (snd p) (fun _ => true).
Definition as_rounds (steps : list (list transfer)) : list (list (message nat)) :=
  map (fun ts => map bundle (peers ts)) steps.

Lemma as_rounds_length steps : length (as_rounds steps) = length steps.
Proof. apply map_length. Qed.

Lemma as_rounds_send k steps : steps_send k steps -> send_ports k (as_rounds steps).
Proof.
  intros H ms Hms r. apply in_map_iff in Hms as (ts & <- & Hts). rewrite count_map.
  apply (H ts Hts r).
Qed.

Lemma as_rounds_receive k steps : steps_receive k steps -> receive_ports k (as_rounds steps).
Proof.
  intros H ms Hms r. apply in_map_iff in Hms as (ts & <- & Hts). rewrite count_map.
  apply (H ts Hts r).
Qed.

Lemma as_rounds_among n steps : among n steps -> from_ranks n (as_rounds steps).
Proof.
  intros H ms Hms m Hm. apply in_map_iff in Hms as (ts & <- & Hts).
  apply in_map_iff in Hm as (p & <- & Hp). apply nodup_In, in_map_iff in Hp as (t & <- & Ht).
  apply filter_In in Ht as [Ht _]. cbn. apply H, in_concat. eauto.
Qed.

(** Every rank whose input is in a value of rank r is known to r. *)
Definition tracks (s : state) (K : knowledge nat) : Prop :=
  forall r l x, In x (s r l) -> K r (fst x) = true.

(** A step of the machine spreads no more than its messages at once. *)
Lemma tracks_step s K ts : tracks s K -> tracks (step s ts) (at_once K (map bundle (peers ts))).
Proof.
  intros H0. set (K' := at_once K _).
  assert (grow : below K K') by apply at_once_grows.
  assert (told : forall t, In t ts ->
            forall x, In x (s (src t) (src_loc t)) -> K' (dst t) (fst x) = true).
  { intros t Ht x Hx. pose proof (H0 _ _ x Hx) as Hk.
    destruct (Nat.eq_dec (src t) (dst t)) as [e|ne]; [rewrite <- e; auto|].
    unfold K', at_once. apply orb_true_iff. right. apply existsb_exists.
    exists (bundle (src t, dst t)). split.
    - apply in_map, nodup_In, (in_map (fun t => (src t, dst t))), filter_In.
      split; [assumption|]. apply negb_true_iff, Nat.eqb_neq, ne.
    - unfold tells; cbn. rewrite Nat.eqb_refl, Hk. reflexivity. }
  unfold step.
  assert (G : forall us new, (forall t, In t us -> In t ts) -> tracks new K' ->
            tracks (fold_left (receive s) us new) K').
  { induction us as [|t us IH]; intros new Hus Hnew; [assumption|].
    cbn [fold_left]. apply IH; [intros; apply Hus; right; assumption|].
    intros r l x. unfold receive, write.
    destruct ((r =? dst t) && (l =? dst_loc t)) eqn:E; [|apply Hnew].
    apply andb_true_iff in E as [E _]. apply Nat.eqb_eq in E as ->.
    assert (Ht : In t ts) by (apply Hus; left; reflexivity).
    destruct (reduces t); [|apply told, Ht].
    intros Hx. apply in_app_or in Hx as [Hx|Hx]; [apply (Hnew _ _ _ Hx)|apply (told t Ht), Hx]. }
  apply G; [auto|]. intros r l x Hx. apply grow, (H0 r l), Hx.
Qed.

Lemma tracks_run steps : forall s K, tracks s K -> tracks (run s steps) (in_rounds K (as_rounds steps)).
Proof.
  induction steps as [|ts steps IH]; intros s K H; [assumption|].
  cbn [run fold_left as_rounds map in_rounds]. apply IH, tracks_step, H.
Qed.

(** Rank [r] ends with something of rank [i]: any input of it, in any value. *)
Definition has_from (s : state) (r i : nat) : Prop := exists l c, In (i, c) (s r l).

Definition self : knowledge nat := fun r i => r =? i.

Lemma has_from_known s steps r i :
  private s -> has_from (run s steps) r i -> in_rounds self (as_rounds steps) r i = true.
Proof.
  intros H0 (l & c & Hx). apply (tracks_run steps s self) with (x := (i, c)) (l := l); [|exact Hx].
  intros q l' x Hq. apply Nat.eqb_eq. symmetry. apply (H0 q l' x Hq).
Qed.

Lemma self_own_only n : own_only n (fun i => i) self.
Proof. intros i _ r E. apply Nat.eqb_eq, E. Qed.

(** Reduce, Gather, and what contains them: if one rank ends with something of
    each of n ranks, and a rank receives from at most k others a step, then
    n <= (k+1)^steps. *)
Theorem into_one_steps n k s steps r :
  private s -> steps_receive k steps -> (forall i, i < n -> has_from (run s steps) r i) ->
  n <= (k + 1) ^ length steps.
Proof.
  intros H0 Hp H. rewrite <- (as_rounds_length steps).
  apply (all_to_one_rounds n k (fun i => i) self _ r).
  - apply self_own_only.
  - apply as_rounds_receive, Hp.
  - intros i Hi. apply (has_from_known s); auto.
Qed.

(** Broadcast, Scatter, and what contains them: if n ranks end with something of
    one rank, and a rank sends to at most k others a step, then n <= (k+1)^steps. *)
Theorem out_of_one_steps n k s steps root :
  private s -> among n steps -> steps_send k steps ->
  (forall r, r < n -> has_from (run s steps) r root) ->
  n <= (k + 1) ^ length steps.
Proof.
  intros H0 Ha Hp H. rewrite <- (as_rounds_length steps).
  apply (one_to_all_rounds n k self _ root root).
  - apply as_rounds_among, Ha.
  - apply as_rounds_send, Hp.
  - intros r E. apply Nat.eqb_eq, E.
  - intros r Hr. apply (has_from_known s); auto.
Qed.

(** AllReduce, AllGather, ReduceScatter, AllToAll: k ports on either side will do. *)
Theorem all_to_all_steps n k s steps :
  1 <= n -> private s -> among n steps -> steps_send k steps \/ steps_receive k steps ->
  (forall r i, r < n -> i < n -> has_from (run s steps) r i) ->
  n <= (k + 1) ^ length steps.
Proof.
  intros Hn H0 Ha [Hp|Hp] H.
  - apply out_of_one_steps with s 0; auto.
  - apply into_one_steps with s 0; auto.
Qed.

(** The outputs of the collectives are of this kind. *)
Lemma holds_reduced_from n s r c i : holds_reduced n s r c -> i < n -> has_from s r i.
Proof. intros (l & _ & H) Hi. exists l, c. apply H. eauto. Qed.

Lemma holds_input_from s r i c : holds_input s r (i, c) -> has_from s r i.
Proof. intros (l & _ & H). exists l, c. apply H. reflexivity. Qed.

Corollary all_reduce_steps n k s steps c :
  1 <= n -> private s -> among n steps -> steps_send k steps \/ steps_receive k steps ->
  (forall r, r < n -> holds_reduced n (run s steps) r c) ->
  n <= (k + 1) ^ length steps.
Proof.
  intros Hn H0 Ha Hp H. apply all_to_all_steps with s; try assumption.
  intros r i Hr Hi. apply (holds_reduced_from n _ r c i (H r Hr) Hi).
Qed.

Corollary broadcast_steps n k s steps root c :
  private s -> among n steps -> steps_send k steps ->
  (forall r, r < n -> holds_input (run s steps) r (root, c)) ->
  n <= (k + 1) ^ length steps.
Proof.
  intros H0 Ha Hp H. apply out_of_one_steps with s root; try assumption.
  intros r Hr. apply (holds_input_from _ r root c (H r Hr)).
Qed.

Print Assumptions into_one_steps.
Print Assumptions out_of_one_steps.
Print Assumptions all_to_all_steps.
Print Assumptions all_reduce_steps.
Print Assumptions broadcast_steps.
