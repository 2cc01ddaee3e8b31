(** Cut bounds on any network.

    The network is a directed graph: link (u, v) passes [cap u v] blocks per unit
    of time, none where there is no link.  A hop takes one block over one link.  In
    time T = p/q, link (u, v) passes at most T * cap u v hops; when in that time,
    and in which order over the network, is left open.  Compute vertices own b
    blocks each; all other vertices are switches: they own nothing, and can only
    pass on, copy, and (for ReduceScatter) combine what they were sent.

    Take a set S of vertices.  What must get from S to the outside must pass over
    the links that leave S, and only so much fits through them.

    AllGather, some compute vertex outside S:
       T * (bandwidth leaving S)  >= b * (number of compute vertices in S).
    ReduceScatter, some compute vertex outside S:
       T * (bandwidth entering S) >= b * (number of compute vertices in S).
    Broadcast of m blocks, the root in S, some compute vertex outside:
       T * (bandwidth leaving S)  >= m.
    In the first two the vector is m blocks on N compute vertices, b = m/N. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge.
Import ListNotations.

(** A block is (compute vertex that owns it, index). *)
Definition block := (nat * nat)%type.
Record hop := Hop { tail : nat; tip : nat; load : block }.

Definition same_block (x y : block) : bool := (fst x =? fst y) && (snd x =? snd y).

Lemma same_block_spec x y : same_block x y = true <-> x = y.
Proof.
  unfold same_block. rewrite andb_true_iff, !Nat.eqb_eq.
  destruct x, y; cbn. split; [intros []|intros [=]]; subst; auto.
Qed.

Lemma list_sum_cons a l : list_sum (a :: l) = a + list_sum l.
Proof. reflexivity. Qed.

(** ** How much fits through a cut *)

Section Capacity.
  Variable vertices : list nat.  (* each once, so that no link counts twice *)
  Variable cap : nat -> nat -> nat.

  (** The bandwidth of the links that leave the set [S]. *)
  Definition links_out (S : nat -> bool) : list (nat * nat) :=
    filter (fun e => S (fst e) && negb (S (snd e))) (list_prod vertices vertices).
  Definition bandwidth_out (S : nat -> bool) : nat :=
    list_sum (map (fun e => cap (fst e) (snd e)) (links_out S)).

  (** The bandwidth of the links that enter [S] leaves its complement. *)
  Definition outside (S : nat -> bool) : nat -> bool := fun v => negb (S v).
  Definition bandwidth_in (S : nat -> bool) : nat := bandwidth_out (outside S).

  Definition over (e : nat * nat) (h : hop) : bool := (tail h =? fst e) && (tip h =? snd e).

  (** All hops stay in the network; every link has room for its hops in time p/q. *)
  Definition in_network (hops : list hop) : Prop :=
    forall h, In h hops -> In (tail h) vertices /\ In (tip h) vertices.
  Definition fits (p q : nat) (hops : list hop) : Prop :=
    forall u v, q * count (over (u, v)) hops <= p * cap u v.

  Definition leaves (S : nat -> bool) (h : hop) : bool := S (tail h) && negb (S (tip h)).

  (** The hops that leave S, counted link by link. *)
  Lemma leaving_hops S p q hops :
    in_network hops -> fits p q hops -> q * count (leaves S) hops <= p * bandwidth_out S.
  Proof.
    intros Hin Hfit.
    assert (A : count (leaves S) hops <=
                list_sum (map (fun e => count (over e) hops) (links_out S))).
    { clear Hfit. induction hops as [|h hops IH]; [apply Nat.le_0_l|].
      assert (D : forall es, list_sum (map (fun e => count (over e) (h :: hops)) es) =
                  count (fun e => over e h) es +
                  list_sum (map (fun e => count (over e) hops) es)).
      { induction es as [|e es IHe]; [reflexivity|].
        cbn [map]. rewrite !list_sum_cons, !count_cons, IHe. lia. }
      rewrite D, count_cons.
      specialize (IH (fun h' H => Hin h' (or_intror H))).
      destruct (leaves S h) eqn:L; [|lia].
      assert (1 <= count (fun e => over e h) (links_out S)); [|lia].
      destruct (Hin h (or_introl eq_refl)) as [H1 H2].
      assert (In (tail h, tip h) (filter (fun e => over e h) (links_out S))).
      { apply filter_In. split.
        - apply filter_In. split; [apply in_prod; assumption|exact L].
        - unfold over; cbn. rewrite !Nat.eqb_refl. reflexivity. }
      unfold count. destruct (filter _ (links_out S)); [contradiction|cbn; lia]. }
    assert (B : forall es, q * list_sum (map (fun e => count (over e) hops) es) <=
                           p * list_sum (map (fun e => cap (fst e) (snd e)) es)).
    { induction es as [|[u v] es IHe]; [cbn; lia|]. cbn [map].
      specialize (Hfit u v). rewrite !list_sum_cons. cbn [fst snd]. nia. }
    etransitivity; [apply Nat.mul_le_mono_l, A|apply B].
  Qed.

  (** T rounds, in each of which every link passes at most its capacity, fit in
      time T. *)
  Lemma rounds_fit rounds :
    (forall round, In round rounds -> fits 1 1 round) -> fits (length rounds) 1 (concat rounds).
  Proof.
    intros H u v. induction rounds as [|r rounds IH]; [cbn; lia|].
    cbn [concat length]. rewrite count_app.
    specialize (IH (fun l Hl => H l (or_intror Hl))).
    specialize (H r (or_introl eq_refl) u v). lia.
  Qed.
End Capacity.

(** ** What must cross a cut *)

(** Let each hop be a message about its block, in any model of what is told.  An
    item that is in S only, and outside later, was told by a hop that leaves S. *)
Lemma must_leave {item} (told : block -> item -> bool) (S : nat -> bool) (x : item) hops :
  let as_message h := Message (tail h) (tip h) (told (load h)) in
  forall K : knowledge item,
  (forall v, K v x = true -> S v = true) ->
  forall v, in_sequence K (map as_message hops) v x = true -> S v = false ->
  exists h, In h hops /\ leaves S h = true /\ told (load h) x = true.
Proof.
  intros as_message. induction hops as [|h hops IH]; intros K H0 v Hv Sv.
  - cbn in Hv. apply H0 in Hv. congruence.
  - destruct (leaves S h && told (load h) x) eqn:E.
    + apply andb_true_iff in E as [E1 E2]. exists h. cbn; auto.
    + destruct (IH (deliver K (as_message h))) with (v := v) as (h' & Hh & ?); auto.
      * intros w Hw. unfold deliver, tells in Hw. cbn in Hw.
        rewrite orb_true_iff, !andb_true_iff, Nat.eqb_eq in Hw.
        destruct Hw as [Hw|(<- & Hs & Hc)]; [auto|].
        rewrite Hc, andb_true_r in E. unfold leaves in E.
        rewrite (H0 _ Hs) in E. cbn in E. apply negb_false_iff, E.
      * exists h'. cbn; auto.
Qed.

Section Bounds.
  Variable vertices compute : list nat.
  Variable cap : nat -> nat -> nat.
  Variable b : nat.              (* blocks per compute vertex *)
  Hypothesis compute_distinct : NoDup compute.
  Variable S : nat -> bool.      (* the set *)

  (** The blocks that the compute vertices in S own. *)
  Definition compute_in : list nat := filter S compute.
  Definition blocks_in : list block := list_prod compute_in (seq 0 b).

  Lemma blocks_in_length : length blocks_in = length compute_in * b.
  Proof. unfold blocks_in. etransitivity; [apply prod_length|]. rewrite seq_length. reflexivity. Qed.

  Lemma blocks_in_distinct : NoDup blocks_in.
  Proof. apply NoDup_pairs; [apply NoDup_filter, compute_distinct|apply seq_NoDup]. Qed.

  Lemma in_blocks_in u i : In (u, i) blocks_in <-> In u compute /\ S u = true /\ i < b.
  Proof. unfold blocks_in, compute_in. rewrite in_prod_iff, filter_In, in_seq. intuition lia. Qed.

  (** ** AllGather *)

  (** The item is the block itself; at first a block is with its owner. *)
  Definition gather_message (h : hop) : message block :=
    Message (tail h) (tip h) (same_block (load h)).
  Definition owned : knowledge block := fun v x => v =? fst x.

  Definition gathered (K : knowledge block) : Prop :=
    forall v, In v compute -> forall u i, In u compute -> i < b -> K v (u, i) = true.

  Theorem all_gather_cut p q hops w :
    In w compute -> S w = false ->
    in_network vertices hops -> fits cap p q hops ->
    gathered (in_sequence owned (map gather_message hops)) ->
    q * (length compute_in * b) <= p * bandwidth_out vertices cap S.
  Proof.
    intros Hw Sw Hin Hfit Hg.
    etransitivity; [|apply (leaving_hops vertices cap S p q hops Hin Hfit)].
    apply Nat.mul_le_mono_l. rewrite <- blocks_in_length.
    apply (distinct_images load); [apply blocks_in_distinct|].
    intros [u i] Hx. apply in_blocks_in in Hx as (Hu & Su & Hi).
    destruct (must_leave same_block S (u, i) hops owned) with (v := w) as (h & Hh & Lh & Eh).
    - intros v Hv. apply Nat.eqb_eq in Hv. cbn in Hv. congruence.
    - apply Hg; assumption.
    - exact Sw.
    - apply same_block_spec in Eh. rewrite <- Eh. apply in_map, filter_In. auto.
  Qed.

  (** The same for T synchronous rounds. *)
  Corollary all_gather_cut_rounds rounds w :
    In w compute -> S w = false ->
    in_network vertices (concat rounds) ->
    (forall round, In round rounds -> fits cap 1 1 round) ->
    gathered (in_rounds owned (map (map gather_message) rounds)) ->
    length compute_in * b <= length rounds * bandwidth_out vertices cap S.
  Proof.
    intros Hw Sw Hin Hfit Hg. rewrite <- (Nat.mul_1_l (_ * b)).
    apply all_gather_cut with (hops := concat rounds) (w := w); try assumption.
    - apply rounds_fit, Hfit.
    - intros v Hv u i Hu Hi. rewrite concat_map. apply linearise, Hg; assumption.
  Qed.

  (** ** ReduceScatter *)

  (** The item is (contributor, block): that vertex's contribution to the block.  A
      hop carries any reduction of contributions to its block. *)
  Definition scatter_message (h : hop) : message (nat * block) :=
    Message (tail h) (tip h) (fun x => same_block (load h) (snd x)).
  Definition contributed : knowledge (nat * block) := fun v x => v =? fst x.

  Definition reduced (K : knowledge (nat * block)) : Prop :=
    forall w, In w compute -> forall u i, In u compute -> i < b -> K u (w, (u, i)) = true.

  Theorem reduce_scatter_cut p q hops w :
    In w compute -> S w = false ->
    in_network vertices hops -> fits cap p q hops ->
    reduced (in_sequence contributed (map scatter_message hops)) ->
    q * (length compute_in * b) <= p * bandwidth_in vertices cap S.
  Proof.
    intros Hw Sw Hin Hfit Hr.
    etransitivity; [|apply (leaving_hops vertices cap (outside S) p q hops Hin Hfit)].
    apply Nat.mul_le_mono_l. rewrite <- blocks_in_length.
    apply (distinct_images load); [apply blocks_in_distinct|].
    intros [u i] Hx. apply in_blocks_in in Hx as (Hu & Su & Hi).
    destruct (must_leave (fun y x => same_block y (snd x)) (outside S) (w, (u, i)) hops contributed)
      with (v := u) as (h & Hh & Lh & Eh).
    - intros v Hv. apply Nat.eqb_eq in Hv. cbn in Hv. unfold outside. rewrite Hv, Sw. reflexivity.
    - apply Hr; assumption.
    - unfold outside. rewrite Su. reflexivity.
    - apply same_block_spec in Eh. cbn in Eh. rewrite <- Eh. apply in_map, filter_In. auto.
  Qed.

  Corollary reduce_scatter_cut_rounds rounds w :
    In w compute -> S w = false ->
    in_network vertices (concat rounds) ->
    (forall round, In round rounds -> fits cap 1 1 round) ->
    reduced (in_rounds contributed (map (map scatter_message) rounds)) ->
    length compute_in * b <= length rounds * bandwidth_in vertices cap S.
  Proof.
    intros Hw Sw Hin Hfit Hr. rewrite <- (Nat.mul_1_l (_ * b)).
    apply reduce_scatter_cut with (hops := concat rounds) (w := w); try assumption.
    - apply rounds_fit, Hfit.
    - intros v Hv u i Hu Hi. rewrite concat_map. apply linearise, Hr; assumption.
  Qed.

  (** ** Broadcast *)

  Theorem broadcast_cut root m p q hops w :
    S root = true -> S w = false ->
    in_network vertices hops -> fits cap p q hops ->
    (forall i, i < m -> in_sequence owned (map gather_message hops) w (root, i) = true) ->
    q * m <= p * bandwidth_out vertices cap S.
  Proof.
    intros Sr Sw Hin Hfit H.
    etransitivity; [|apply (leaving_hops vertices cap S p q hops Hin Hfit)].
    apply Nat.mul_le_mono_l.
    replace m with (length (map (pair root) (seq 0 m))) by (rewrite map_length; apply seq_length).
    apply (distinct_images load).
    - apply NoDup_map_on; [|apply seq_NoDup]. intros ? ? _ _ [=]; assumption.
    - intros x Hx. apply in_map_iff in Hx as (i & <- & Hi). apply in_seq in Hi.
      destruct (must_leave same_block S (root, i) hops owned) with (v := w) as (h & Hh & Lh & Eh).
      + intros v Hv. apply Nat.eqb_eq in Hv. cbn in Hv. congruence.
      + apply H. lia.
      + exact Sw.
      + apply same_block_spec in Eh. rewrite <- Eh. apply in_map, filter_In. auto.
  Qed.
End Bounds.

Print Assumptions all_gather_cut.
Print Assumptions all_gather_cut_rounds.
Print Assumptions reduce_scatter_cut.
Print Assumptions reduce_scatter_cut_rounds.
Print Assumptions broadcast_cut.
