(** Lower bounds on the number of rounds when each rank has k ports.

    A round is synchronous; a message may carry everything its sender knows.
    - Receive side: if a rank receives at most k messages a round, what it knows
      grows by a factor k+1 at most.
    - Send side: if a rank sends at most k messages a round, the number of ranks
      that know a given item grows by a factor k+1 at most.
    Hence n <= (k+1)^t for everything in which one rank depends on n ranks, or n
    ranks depend on one.  For blocks that travel singly, the root needs n-1 rounds
    to let go of all blocks but one, and the last one must still spread. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge.
Import ListNotations.

(** In each round, every rank receives, or sends, at most k messages. *)
Definition receive_ports {item} (k : nat) (rounds : list (list (message item))) : Prop :=
  forall ms, In ms rounds -> forall r, count (fun m => receiver m =? r) ms <= k.
Definition send_ports {item} (k : nat) (rounds : list (list (message item))) : Prop :=
  forall ms, In ms rounds -> forall r, count (fun m => sender m =? r) ms <= k.

(** In the beginning the input of a rank is known to that rank only. *)
Definition own_only {item} (n : nat) (input_of : nat -> item) (K : knowledge item) : Prop :=
  forall i, i < n -> forall r, K r (input_of i) = true -> r = i.

(** ** Receive side *)

Section ReceiveSide.
  Context {item : Type}.
  Variables n k : nat.
  Variable input_of : nat -> item.
  Implicit Types K : knowledge item.

  (** On how many of the ranks [0 .. n-1] rank [r] depends: it knows their input. *)
  Definition knows K r : nat -> bool := fun i => K r (input_of i).
  Definition size K r : nat := count (knows K r) (seq 0 n).

  Lemma size_round K ms B :
    (forall r, count (fun m => receiver m =? r) ms <= k) ->
    (forall r, size K r <= B) -> forall r, size (at_once K ms) r <= (k + 1) * B.
  Proof.
    intros Hk HB r.
    set (to_r := filter (fun m => receiver m =? r) ms).
    set (told := concat (map (fun m => filter (knows K (sender m)) (seq 0 n)) to_r)).
    apply Nat.le_trans with (length (filter (knows K r) (seq 0 n) ++ told)).
    - apply NoDup_incl_length; [apply NoDup_filter_seq|].
      intros i Hi. apply filter_In in Hi as [Hi Hk']. unfold knows, at_once in Hk'.
      apply orb_true_iff in Hk' as [H|H]; apply in_or_app; [left|right].
      + apply filter_In; auto.
      + apply existsb_exists in H as (m & Hm & Ht). unfold tells in Ht.
        rewrite !andb_true_iff in Ht. destruct Ht as (Hr & Hs & _).
        apply in_concat. exists (filter (knows K (sender m)) (seq 0 n)). split.
        * apply in_map_iff. exists m. split; [reflexivity|]. apply filter_In; auto.
        * apply filter_In; auto.
    - rewrite app_length.
      assert (T : length told <= length to_r * B).
      { unfold told. clear - HB. induction to_r as [|m l IH]; cbn; [lia|].
        rewrite app_length. specialize (HB (sender m)). unfold size, count in HB. lia. }
      specialize (Hk r). change (length to_r <= k) in Hk.
      specialize (HB r). unfold size, count in HB. nia.
  Qed.

  Lemma size_rounds rounds : receive_ports k rounds -> forall K B,
    (forall r, size K r <= B) ->
    forall r, size (in_rounds K rounds) r <= (k + 1) ^ length rounds * B.
  Proof.
    induction rounds as [|ms rounds IH]; intros Hp K B HB r; cbn [length Nat.pow].
    - rewrite Nat.mul_1_l. apply HB.
    - unfold in_rounds; cbn [fold_left]; fold (in_rounds (at_once K ms) rounds).
      replace ((k + 1) * (k + 1) ^ length rounds * B)
        with ((k + 1) ^ length rounds * ((k + 1) * B)) by lia.
      apply IH.
      + intros l Hl. apply Hp. right; assumption.
      + apply size_round; [|assumption]. intros q. apply Hp. left; reflexivity.
  Qed.

  Lemma size_own_only K r : own_only n input_of K -> size K r <= 1.
  Proof.
    intros H. unfold size. destruct (le_lt_dec n r).
    - rewrite count_none; [lia|]. intros i Hi. apply in_seq in Hi.
      apply not_true_iff_false. intros C. apply H in C; lia.
    - etransitivity; [apply (count_imp _ (fun i => i =? r))|rewrite count_one; lia].
      intros i Hi C. apply in_seq in Hi. apply Nat.eqb_eq. symmetry. apply H; [lia|exact C].
  Qed.

  (** If one rank depends on the inputs of n ranks after t rounds, with at most k
      receptions per rank and round, then n <= (k+1)^t.  (Reduce, Gather, and all
      that contain them: AllReduce, AllGather, ReduceScatter, AllToAll, Barrier.) *)
  Theorem all_to_one_rounds K rounds r :
    own_only n input_of K -> receive_ports k rounds ->
    (forall i, i < n -> in_rounds K rounds r (input_of i) = true) ->
    n <= (k + 1) ^ length rounds.
  Proof.
    intros H0 Hp H.
    pose proof (size_rounds rounds Hp K 1 (fun q => size_own_only K q H0) r) as B.
    unfold size in B. rewrite count_all, seq_length in B; [lia|].
    intros i Hi. apply in_seq in Hi. apply H; lia.
  Qed.
End ReceiveSide.

(** ** Send side *)

Section SendSide.
  Context {item : Type}.
  Variables n k : nat.
  Implicit Types K : knowledge item.

  (** How many of the ranks [0 .. n-1] know item [i]. *)
  Definition holders K i : nat := count (fun r => K r i) (seq 0 n).

  (** All messages start from ranks [0 .. n-1]. *)
  Definition from_ranks (rounds : list (list (message item))) : Prop :=
    forall ms, In ms rounds -> forall m, In m ms -> sender m < n.

  Lemma holders_round K ms i :
    (forall m, In m ms -> sender m < n) ->
    (forall r, count (fun m => sender m =? r) ms <= k) ->
    holders (at_once K ms) i <= (k + 1) * holders K i.
  Proof.
    intros Hn Hk. unfold holders.
    set (old := filter (fun r => K r i) (seq 0 n)).
    set (telling := filter (fun m => K (sender m) i) ms).
    apply Nat.le_trans with (length (old ++ map receiver telling)).
    - apply NoDup_incl_length; [apply NoDup_filter_seq|].
      intros r Hr. apply filter_In in Hr as [Hr H]. unfold at_once in H.
      apply orb_true_iff in H as [H|H]; apply in_or_app; [left|right].
      + apply filter_In; auto.
      + apply existsb_exists in H as (m & Hm & Ht). unfold tells in Ht.
        rewrite !andb_true_iff in Ht. destruct Ht as (Er & Hs & _).
        apply Nat.eqb_eq in Er as <-. apply in_map, filter_In. auto.
    - rewrite app_length, map_length.
      assert (T : length telling <= k * length old).
      { apply (at_most_k_each sender).
        - intros m Hm. apply filter_In in Hm as [Hm Hs]. apply filter_In.
          split; [apply in_seq; specialize (Hn m Hm); lia|assumption].
        - intros r _. etransitivity; [|apply (Hk r)]. unfold telling. clear.
          induction ms as [|m ms IH]; [auto|]. cbn [filter].
          destruct (K (sender m) i); rewrite !count_cons; lia. }
      change (count (fun r => K r i) (seq 0 n)) with (length old). lia.
  Qed.

  Lemma holders_rounds rounds i : from_ranks rounds -> send_ports k rounds -> forall K,
    holders (in_rounds K rounds) i <= (k + 1) ^ length rounds * holders K i.
  Proof.
    induction rounds as [|ms rounds IH]; intros Hn Hp K; cbn [length Nat.pow].
    - rewrite Nat.mul_1_l. apply le_n.
    - unfold in_rounds; cbn [fold_left]; fold (in_rounds (at_once K ms) rounds).
      assert (R : holders (at_once K ms) i <= (k + 1) * holders K i).
      { apply holders_round; [apply Hn|apply Hp]; left; reflexivity. }
      etransitivity; [apply IH|].
      + intros l Hl. apply Hn. right; assumption.
      + intros l Hl. apply Hp. right; assumption.
      + nia.
  Qed.

  (** If only the root knows the item at first, at most (k+1)^t ranks know it
      after t rounds. *)
  Theorem informed_ranks K rounds i root :
    from_ranks rounds -> send_ports k rounds ->
    (forall r, K r i = true -> r = root) ->
    holders (in_rounds K rounds) i <= (k + 1) ^ length rounds.
  Proof.
    intros Hn Hp H0. etransitivity; [apply holders_rounds; assumption|].
    assert (O : holders K i <= 1); [|nia].
    unfold holders. etransitivity; [apply (count_imp _ (fun r => r =? root))|].
    - intros r _ Hr. apply Nat.eqb_eq, H0, Hr.
    - destruct (le_lt_dec n root).
      + rewrite count_none; [lia|]. intros a Ha. apply in_seq in Ha. apply Nat.eqb_neq. lia.
      + rewrite count_one; lia.
  Qed.

  Lemma holders_all K i : (forall r, r < n -> K r i = true) -> holders K i = n.
  Proof.
    intros H. unfold holders. rewrite count_all, seq_length; [reflexivity|].
    intros r Hr. apply in_seq in Hr. apply H; lia.
  Qed.

  (** If n ranks depend on one item of one rank after t rounds, with at most k
      messages sent per rank and round, then n <= (k+1)^t.  (Broadcast, Scatter of
      one vector, and all that contain them.) *)
  Theorem one_to_all_rounds K rounds i root :
    from_ranks rounds -> send_ports k rounds ->
    (forall r, K r i = true -> r = root) ->
    (forall r, r < n -> in_rounds K rounds r i = true) ->
    n <= (k + 1) ^ length rounds.
  Proof.
    intros Hn Hp H0 H1. rewrite <- (holders_all _ i H1) at 1.
    apply informed_ranks with root; assumption.
  Qed.
End SendSide.

(** AllGather and AllReduce (everybody depends on everybody): k ports on either
    side are enough for the bound. *)
Theorem all_to_all_rounds {item} n k (input_of : nat -> item) K rounds :
  own_only n input_of K ->
  1 <= n -> from_ranks n rounds -> receive_ports k rounds \/ send_ports k rounds ->
  (forall r i, r < n -> i < n -> in_rounds K rounds r (input_of i) = true) ->
  n <= (k + 1) ^ length rounds.
Proof.
  intros H0 Hn Hf [Hp|Hp] H.
  - apply (all_to_one_rounds n k input_of K rounds 0 H0 Hp). intros i Hi. apply H; lia.
  - apply (one_to_all_rounds n k K rounds (input_of 0) 0); auto.
Qed.

(** The least number of rounds with one port, ceil(log2 n). *)
Lemma log2_rounds n t : n <= 2 ^ t -> Nat.log2_up n <= t.
Proof.
  intros H. etransitivity; [apply Nat.log2_up_le_mono, H|].
  rewrite Nat.log2_up_pow2; lia.
Qed.

Corollary all_to_all_rounds_one_port {item} n (input_of : nat -> item) K rounds :
  own_only n input_of K ->
  1 <= n -> from_ranks n rounds -> receive_ports 1 rounds \/ send_ports 1 rounds ->
  (forall r i, r < n -> i < n -> in_rounds K rounds r (input_of i) = true) ->
  Nat.log2_up n <= length rounds.
Proof.
  intros H0 Hn Hf Hp H. apply log2_rounds, (all_to_all_rounds n 1 input_of K); assumption.
Qed.

(** ** Broadcast of many blocks *)

Section Blocks.
  Variables n k blocks root : nat.

  (** A message carries one block at most. *)
  Definition single (rounds : list (list (message nat))) : Prop :=
    forall ms, In ms rounds -> forall m, In m ms -> forall i j,
      carries m i = true -> carries m j = true -> i = j.

  Definition root_only : knowledge nat := fun r _ => r =? root.

  (** A block that the root did not send is still with the root only. *)
  Lemma unsent_block rounds i :
    (forall ms, In ms rounds -> forall m, In m ms -> sender m = root -> carries m i = false) ->
    forall K : knowledge nat, (forall r, K r i = true -> r = root) ->
    forall r, in_rounds K rounds r i = true -> r = root.
  Proof.
    induction rounds as [|ms rounds IH]; intros H K H0 r Hr; [apply H0, Hr|].
    apply (IH (fun l Hl => H l (or_intror Hl)) (at_once K ms)); [|assumption].
    intros q Hq. unfold at_once in Hq. apply orb_true_iff in Hq as [Hq|Hq]; [auto|].
    apply existsb_exists in Hq as (m & Hm & Ht). unfold tells in Ht.
    rewrite !andb_true_iff in Ht. destruct Ht as (_ & Hs & Hc).
    apply H0 in Hs. rewrite (H ms (or_introl eq_refl) m Hm Hs) in Hc. discriminate.
  Qed.

  (** In few rounds the root cannot let go of all its blocks. *)
  Lemma some_block_stays rounds :
    single rounds -> send_ports k rounds -> k * length rounds < blocks ->
    exists i, i < blocks /\
      forall ms, In ms rounds -> forall m, In m ms -> sender m = root -> carries m i = false.
  Proof.
    intros Hs Hp Hlt.
    set (out := filter (fun m => sender m =? root) (concat rounds)).
    assert (Out : length out <= k * length rounds).
    { unfold out. clear - Hp. induction rounds as [|ms rounds IH]; [cbn; lia|].
      cbn [concat length]. rewrite filter_app, app_length.
      specialize (IH (fun l Hl => Hp l (or_intror Hl))).
      specialize (Hp ms (or_introl eq_refl) root). unfold count in Hp. lia. }
    (* the blocks that the messages of the root carry *)
    set (carried := map (fun m => find (carries m) (seq 0 blocks)) out).
    destruct (existsb (fun i => negb (existsb (fun m => carries m i) out)) (seq 0 blocks)) eqn:E.
    - apply existsb_exists in E as (i & Hi & Hn). apply in_seq in Hi.
      exists i. split; [lia|]. intros ms Hms m Hm Er.
      apply not_true_iff_false. intros Hc. apply negb_true_iff in Hn.
      apply not_true_iff_false in Hn. apply Hn, existsb_exists. exists m. split; [|assumption].
      apply filter_In. split; [apply in_concat; eauto|]. apply Nat.eqb_eq, Er.
    - exfalso. cut (length (map Some (seq 0 blocks)) <= length carried).
      { unfold carried. rewrite !map_length, seq_length. lia. }
      apply NoDup_incl_length.
      + apply NoDup_map_on; [|apply seq_NoDup]. intros ? ? _ _ [=]; assumption.
      + intros o Ho. apply in_map_iff in Ho as (i & <- & Hi).
        assert (E' : existsb (fun m => carries m i) out = true).
        { apply not_false_iff_true. intros F. apply not_true_iff_false in E. apply E.
          apply existsb_exists. exists i. split; [assumption|]. rewrite F. reflexivity. }
        apply existsb_exists in E' as (m & Hm & Hc).
        apply in_map_iff. exists m. split; [|assumption].
        destruct (find (carries m) (seq 0 blocks)) as [j|] eqn:F.
        * apply find_some in F as [_ Hj]. f_equal.
          apply filter_In in Hm as [Hm _]. apply in_concat in Hm as (ms & Hms & Hm).
          apply (Hs ms Hms m Hm); assumption.
        * pose proof (find_none _ _ F i Hi) as G. cbn in G. congruence.
  Qed.

  (** Broadcast of blocks to n >= 2 ranks with k send ports: after the first
      floor((blocks-1)/k) rounds some block has not left the root, and the
      remaining rounds must spread it. *)
  Theorem broadcast_blocks_k rounds :
    2 <= n -> 1 <= blocks -> 1 <= k ->
    from_ranks n rounds -> single rounds -> send_ports k rounds ->
    (forall r i, r < n -> i < blocks -> in_rounds root_only rounds r i = true) ->
    exists later, length rounds = (blocks - 1) / k + later /\ n <= (k + 1) ^ later.
  Proof.
    intros Hn Hb Hk Hf Hs Hp H. set (early := (blocks - 1) / k).
    assert (He : k * early < blocks).
    { unfold early. pose proof (Nat.mul_div_le (blocks - 1) k). lia. }
    set (head := firstn early rounds). set (tail := skipn early rounds).
    assert (Er : rounds = head ++ tail) by (symmetry; apply firstn_skipn).
    assert (Hh : forall l, In l head -> In l rounds)
      by (intros l Hl; rewrite Er; apply in_or_app; auto).
    assert (Ht : forall l, In l tail -> In l rounds)
      by (intros l Hl; rewrite Er; apply in_or_app; auto).
    destruct (some_block_stays head) as (i & Hi & Stay).
    { intros l Hl; apply Hs, Hh, Hl. }
    { intros l Hl; apply Hp, Hh, Hl. }
    { unfold head. pose proof (firstn_le_length early rounds).
      apply Nat.le_lt_trans with (k * early); [|assumption]. apply Nat.mul_le_mono_l; assumption. }
    assert (Only : forall r, in_rounds root_only head r i = true -> r = root).
    { apply unsent_block; [exact Stay|]. intros r Hr. apply Nat.eqb_eq, Hr. }
    exists (length tail).
    assert (Last : n <= (k + 1) ^ length tail).
    { apply (one_to_all_rounds n k (in_rounds root_only head) tail i root).
      - intros l Hl; apply Hf, Ht, Hl.
      - intros l Hl; apply Hp, Ht, Hl.
      - exact Only.
      - intros r Hr. rewrite <- in_rounds_app, <- Er. apply H; assumption. }
    split; [|exact Last].
    destruct tail as [|l tail'] eqn:Et.
    - cbn in Last. lia.
    - assert (length head = early).
      { unfold head. apply firstn_length_le. apply Nat.lt_le_incl.
        apply Nat.nle_gt. intros F. apply skipn_all2 in F. unfold tail in Et. congruence. }
      rewrite Er, app_length. lia.
  Qed.
End Blocks.

(** One port: at least blocks - 1 + ceil(log2 n) rounds. *)
Corollary broadcast_blocks n blocks root rounds :
  2 <= n -> 1 <= blocks ->
  from_ranks n rounds -> single rounds -> send_ports 1 rounds ->
  (forall r i, r < n -> i < blocks -> in_rounds (root_only root) rounds r i = true) ->
  blocks - 1 + Nat.log2_up n <= length rounds.
Proof.
  intros Hn Hb Hf Hs Hp H.
  destruct (broadcast_blocks_k n 1 blocks root rounds Hn Hb (le_n 1) Hf Hs Hp H)
    as (later & E & B).
  rewrite Nat.div_1_r in E. rewrite E. apply Nat.add_le_mono_l.
  apply log2_rounds, B.
Qed.

Print Assumptions all_to_one_rounds.
Print Assumptions informed_ranks.
Print Assumptions one_to_all_rounds.
Print Assumptions all_to_all_rounds.
Print Assumptions all_to_all_rounds_one_port.
Print Assumptions broadcast_blocks_k.
Print Assumptions broadcast_blocks.
