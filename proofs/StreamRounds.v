(** Rounds of a Broadcast, or a Reduce, of many blocks with k ports.

    Out of one rank: n-1 ranks must receive each of the blocks, so blocks * (n-1)
    messages are needed.  In round t (from 0) at most (k+1)^t ranks have anything
    to send, k messages each, and the n-1 others receive k each.
    Into one rank: n-1 ranks must send each of the blocks.  With t rounds left
    after this one, at most (k+1)^t ranks can still reach the root, they receive k
    messages each, and the n-1 others send k each.
    Both ways, in T rounds

       blocks * (n-1)  <=  sum over t < T of  min (k (k+1)^t) (k (n-1)). *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge Rounds.
Import ListNotations.

(** The most messages that can be of use in T rounds. *)
Definition useful_messages (n k T : nat) : nat :=
  sum (fun t => Nat.min (k * (k + 1) ^ t) (k * (n - 1))) T.

(** ** Out of one rank *)

Section OutOfOne.
  Variables n k blocks root : nat.
  Implicit Types K : knowledge nat.

  Definition pairs : list (nat * nat) := list_prod (others n root) (seq 0 blocks).

  (** How many (rank other than the root, block) pairs are known. *)
  Definition progress K : nat := count (fun x => K (fst x) (snd x)) pairs.

  (** The ranks that know any block. *)
  Definition is_active K r : bool := existsb (K r) (seq 0 blocks).
  Definition active K : nat := count (is_active K) (seq 0 n).

  Lemma active_round K ms :
    (forall m, In m ms -> sender m < n) ->
    (forall r, count (fun m => sender m =? r) ms <= k) ->
    active (at_once K ms) <= (k + 1) * active K.
  Proof.
    intros Hn Hk. unfold active.
    set (old := filter (is_active K) (seq 0 n)).
    set (telling := filter (fun m => is_active K (sender m)) ms).
    apply Nat.le_trans with (length (old ++ map receiver telling)).
    - apply NoDup_incl_length; [apply NoDup_filter_seq|].
      intros r Hr. apply filter_In in Hr as [Hr H].
      apply existsb_exists in H as (i & Hi & H). unfold at_once in H.
      apply orb_true_iff in H as [H|H]; apply in_or_app; [left|right].
      + apply filter_In. split; [assumption|]. apply existsb_exists. eauto.
      + apply existsb_exists in H as (m & Hm & Ht). unfold tells in Ht.
        rewrite !andb_true_iff in Ht. destruct Ht as (Er & Hs & _).
        apply Nat.eqb_eq in Er as <-. apply in_map, filter_In. split; [assumption|].
        apply existsb_exists. eauto.
    - rewrite app_length, map_length.
      assert (T : length telling <= k * length old).
      { apply (at_most_k_each sender).
        - intros m Hm. apply filter_In in Hm as [Hm Hs]. apply filter_In.
          split; [apply in_seq; specialize (Hn m Hm); lia|assumption].
        - intros r _. etransitivity; [apply count_filter_le|apply (Hk r)]. }
      change (count (is_active K) (seq 0 n)) with (length old). lia.
  Qed.

  Definition block_of (m : message nat) : nat :=
    match find (carries m) (seq 0 blocks) with Some i => i | None => 0 end.

  Lemma progress_round K ms :
    (forall m, In m ms -> sender m < n) ->
    (forall m, In m ms -> forall i j, carries m i = true -> carries m j = true -> i = j) ->
    (forall r, count (fun m => sender m =? r) ms <= k) ->
    (forall r, count (fun m => receiver m =? r) ms <= k) ->
    root < n ->
    progress (at_once K ms) <= progress K + Nat.min (k * active K) (k * (n - 1)).
  Proof.
    intros Hn Hs Hks Hkr Hroot. unfold progress.
    set (old := filter (fun x : nat * nat => K (fst x) (snd x)) pairs).
    set (useful := filter (fun m => is_active K (sender m) &&
                             ((receiver m <? n) && negb (receiver m =? root))) ms).
    apply Nat.le_trans with (length (old ++ map (fun m => (receiver m, block_of m)) useful)).
    - apply NoDup_incl_length.
      { apply NoDup_filter, NoDup_pairs; [apply NoDup_others|apply seq_NoDup]. }
      intros [r i] Hx. apply filter_In in Hx as [Hx H]. cbn in H.
      unfold at_once in H. apply orb_true_iff in H as [H|H]; apply in_or_app; [left|right].
      + apply filter_In; auto.
      + apply in_prod_iff in Hx as [Hr Hi]. apply in_others in Hr as [Hr Hne].
        apply existsb_exists in H as (m & Hm & Ht). unfold tells in Ht.
        rewrite !andb_true_iff in Ht. destruct Ht as (Er & Hknow & Hc).
        apply Nat.eqb_eq in Er. apply in_map_iff. exists m. split.
        * rewrite Er. f_equal. unfold block_of.
          destruct (find (carries m) (seq 0 blocks)) as [j|] eqn:F.
          -- apply find_some in F as [_ Hj]. apply (Hs m Hm); assumption.
          -- pose proof (find_none _ _ F i Hi) as G. cbn in G. congruence.
        * apply filter_In. split; [assumption|]. rewrite Er, !andb_true_iff. repeat split.
          -- apply existsb_exists. eauto.
          -- apply Nat.ltb_lt, Hr.
          -- apply negb_true_iff, Nat.eqb_neq, Hne.
    - rewrite app_length, map_length. apply Nat.add_le_mono_l. apply Nat.min_glb.
      + unfold active, count. apply (at_most_k_each sender).
        * intros m Hm. apply filter_In in Hm as [Hm E]. apply andb_true_iff in E as [E _].
          apply filter_In. split; [apply in_seq; specialize (Hn m Hm); lia|assumption].
        * intros r _. etransitivity; [apply count_filter_le|apply (Hks r)].
      + rewrite <- (others_length n root Hroot). apply (at_most_k_each receiver).
        * intros m Hm. apply filter_In in Hm as [Hm E]. rewrite !andb_true_iff in E.
          destruct E as (_ & E1 & E2). apply in_others.
          split; [apply Nat.ltb_lt, E1|apply Nat.eqb_neq, negb_true_iff, E2].
        * intros r _. etransitivity; [apply count_filter_le|apply (Hkr r)].
  Qed.

  Lemma out_of_one_progress rounds :
    root < n -> from_ranks n rounds -> single rounds ->
    send_ports k rounds -> receive_ports k rounds ->
    active (in_rounds (root_only root) rounds) <= (k + 1) ^ length rounds /\
    progress (in_rounds (root_only root) rounds) <= useful_messages n k (length rounds).
  Proof.
    intros Hroot. induction rounds as [|ms rounds IH] using rev_ind; intros Hn Hs Hp Hq.
    - split.
      + unfold active. etransitivity; [apply (count_imp _ (fun r => r =? root))|].
        * intros r _ H. apply existsb_exists in H as (i & _ & H). exact H.
        * rewrite count_one by assumption. auto.
      + unfold progress. rewrite count_none; [lia|]. intros [r i] Hx.
        apply in_prod_iff in Hx as [Hr _]. apply in_others in Hr. apply Nat.eqb_neq. cbn. tauto.
    - assert (Hall : forall l, In l rounds -> In l (rounds ++ [ms]))
        by (intros; apply in_or_app; auto).
      assert (Hms : In ms (rounds ++ [ms])) by (apply in_or_app; cbn; auto).
      destruct IH as [A P].
      { intros l Hl; apply Hn, Hall, Hl. } { intros l Hl; apply Hs, Hall, Hl. }
      { intros l Hl; apply Hp, Hall, Hl. } { intros l Hl; apply Hq, Hall, Hl. }
      rewrite in_rounds_app, app_length.
      replace (length rounds + length [ms]) with (S (length rounds)) by (cbn; lia).
      set (K := in_rounds (root_only root) rounds) in *.
      cbn [in_rounds fold_left length Nat.pow]. split.
      + etransitivity; [apply (active_round K ms (Hn ms Hms) (Hp ms Hms))|].
        apply Nat.mul_le_mono_l, A.
      + pose proof (progress_round K ms (Hn ms Hms) (Hs ms Hms) (Hp ms Hms) (Hq ms Hms) Hroot) as R.
        unfold useful_messages in *. rewrite sum_S.
        assert (Nat.min (k * active K) (k * (n - 1)) <=
                Nat.min (k * (k + 1) ^ length rounds) (k * (n - 1))); [|lia].
        apply Nat.min_le_compat_r, Nat.mul_le_mono_l, A.
  Qed.

  (** Broadcast of blocks that travel singly, with k ports. *)
  Theorem out_of_one_rounds rounds :
    root < n -> from_ranks n rounds -> single rounds ->
    send_ports k rounds -> receive_ports k rounds ->
    (forall r i, r < n -> i < blocks -> in_rounds (root_only root) rounds r i = true) ->
    blocks * (n - 1) <= useful_messages n k (length rounds).
  Proof.
    intros Hroot Hn Hs Hp Hq H.
    destruct (out_of_one_progress rounds Hroot Hn Hs Hp Hq) as [_ P].
    etransitivity; [|exact P]. unfold progress. rewrite count_all.
    - unfold pairs. rewrite prod_length, others_length, seq_length by assumption. lia.
    - intros [r i] Hx. apply in_prod_iff in Hx as [Hr Hi]. apply in_others in Hr.
      apply in_seq in Hi. apply H; cbn; lia.
  Qed.
End OutOfOne.

(** ** Into one rank *)

Section IntoOne.
  Variables n k blocks root : nat.
  (* an item is (rank, block): that rank's contribution to that block *)
  Notation item := (nat * nat)%type.
  Implicit Types K : knowledge item.

  (** A message carries contributions to one block only (reduced, or not). *)
  Definition single_block (rounds : list (list (message item))) : Prop :=
    forall ms, In ms rounds -> forall m, In m ms -> forall x y,
      carries m x = true -> carries m y = true -> snd x = snd y.

  Definition own_contributions : knowledge item := fun r x => r =? fst x.

  (** The ranks from which these rounds can bring anything to the root. *)
  Fixpoint reaching (rounds : list (list (message item))) : list nat :=
    match rounds with
    | [] => [root]
    | ms :: rest =>
        let later := reaching rest in
        later ++ map sender (filter (fun m => existsb (Nat.eqb (receiver m)) later) ms)
    end.

  Definition reaches rounds r : bool := existsb (Nat.eqb r) (reaching rounds).

  Lemma reaches_spec rounds r : reaches rounds r = true <-> In r (reaching rounds).
  Proof.
    unfold reaches. rewrite existsb_exists. split.
    - intros (q & Hq & E). apply Nat.eqb_eq in E as ->. assumption.
    - intros H. exists r. split; [assumption|apply Nat.eqb_refl].
  Qed.

  (** Messages of use: to a rank that can still reach the root, and not from it. *)
  Definition useful_in (rest : list (list (message item))) (ms : list (message item)) :=
    filter (fun m => reaches rest (receiver m) && negb (sender m =? root)) ms.
  Fixpoint useful (rounds : list (list (message item))) : list (message item) :=
    match rounds with
    | [] => []
    | ms :: rest => useful_in rest ms ++ useful rest
    end.

  (** Unless known elsewhere where it can reach the root, an item must leave its
      rank on a useful message. *)
  Lemma must_be_useful r x rounds : r <> root -> forall K,
    (forall q, K q x = true -> q = r \/ ~ In q (reaching rounds)) ->
    in_rounds K rounds root x = true ->
    exists m, In m (useful rounds) /\ sender m = r /\ carries m x = true.
  Proof.
    intros Hr. induction rounds as [|ms rest IH]; intros K H0 H1.
    - exfalso. destruct (H0 root H1) as [?|H]; [congruence|]. apply H. left; reflexivity.
    - destruct (existsb (fun m => reaches rest (receiver m) && (sender m =? r) && carries m x) ms) eqn:E.
      + apply existsb_exists in E as (m & Hm & E). rewrite !andb_true_iff in E.
        destruct E as ((E1 & E2) & E3). apply Nat.eqb_eq in E2. exists m. split; [|auto].
        cbn [useful]. apply in_or_app. left. apply filter_In. split; [assumption|].
        rewrite E1. apply negb_true_iff, Nat.eqb_neq. congruence.
      + destruct (IH (at_once K ms)) as (m & Hm & ?); [|exact H1|].
        * intros q Hq. destruct (Nat.eq_dec q r) as [|ne]; [auto|right]. intros Hin.
          unfold at_once in Hq. apply orb_true_iff in Hq as [Hq|Hq].
          -- destruct (H0 q Hq) as [?|H]; [auto|]. apply H. cbn. apply in_or_app; auto.
          -- apply existsb_exists in Hq as (m & Hm & Ht). unfold tells in Ht.
             rewrite !andb_true_iff in Ht. destruct Ht as (Er & Hs & Hc).
             apply Nat.eqb_eq in Er. subst q. apply reaches_spec in Hin.
             destruct (H0 _ Hs) as [Es|H].
             ++ apply not_true_iff_false in E. apply E, existsb_exists. exists m.
                split; [assumption|]. rewrite Hin, Hc, Es, Nat.eqb_refl. reflexivity.
             ++ apply H. cbn. apply in_or_app. right. apply in_map, filter_In. auto.
        * exists m. split; [|assumption]. cbn [useful]. apply in_or_app. auto.
  Qed.

  Lemma reaching_length rounds :
    receive_ports k rounds -> length (reaching rounds) <= (k + 1) ^ length rounds.
  Proof.
    induction rounds as [|ms rest IH]; intros Hp; [cbn; lia|].
    cbn [reaching length Nat.pow]. rewrite app_length, map_length.
    specialize (IH (fun l Hl => Hp l (or_intror Hl))).
    assert (T : length (filter (fun m => existsb (Nat.eqb (receiver m)) (reaching rest)) ms)
                <= k * length (reaching rest)).
    { apply (at_most_k_each receiver).
      - intros m Hm. apply filter_In in Hm as [_ E]. apply reaches_spec, E.
      - intros q _. etransitivity; [apply count_filter_le|]. apply (Hp ms (or_introl eq_refl)). }
    nia.
  Qed.

  Lemma useful_length rounds :
    root < n -> from_ranks n rounds -> send_ports k rounds -> receive_ports k rounds ->
    length (useful rounds) <= useful_messages n k (length rounds).
  Proof.
    intros Hroot. induction rounds as [|ms rest IH]; intros Hn Hp Hq; [cbn; lia|].
    cbn [useful length]. unfold useful_messages in *. rewrite app_length, sum_S, Nat.add_comm.
    assert (Hn' : from_ranks n rest) by (intros l Hl; apply Hn; right; exact Hl).
    assert (Hp' : send_ports k rest) by (intros l Hl; apply Hp; right; exact Hl).
    assert (Hq' : receive_ports k rest) by (intros l Hl; apply Hq; right; exact Hl).
    apply Nat.add_le_mono.
    - apply IH; assumption.
    - apply Nat.min_glb.
      + apply Nat.le_trans with (k * length (reaching rest)).
        * apply (at_most_k_each receiver).
          -- intros m Hm. apply filter_In in Hm as [_ E]. apply andb_true_iff in E as [E _].
             apply reaches_spec, E.
          -- intros q _. etransitivity; [apply count_filter_le|]. apply (Hq ms (or_introl eq_refl)).
        * apply Nat.mul_le_mono_l, reaching_length, Hq'.
      + rewrite <- (others_length n root Hroot). apply (at_most_k_each sender).
        * intros m Hm. apply filter_In in Hm as [Hm E]. apply andb_true_iff in E as [_ E].
          apply in_others. split; [apply (Hn ms (or_introl eq_refl) m Hm)|].
          apply Nat.eqb_neq, negb_true_iff, E.
        * intros q _. etransitivity; [apply count_filter_le|]. apply (Hp ms (or_introl eq_refl)).
  Qed.

  Definition block_carried (m : message item) : nat :=
    match find (fun b => existsb (fun r => carries m (r, b)) (seq 0 n)) (seq 0 blocks) with
    | Some b => b | None => 0
    end.

  Lemma useful_inside rounds m : In m (useful rounds) -> exists ms, In ms rounds /\ In m ms.
  Proof.
    induction rounds as [|ms rest IH]; cbn [useful]; [intros []|].
    intros H. apply in_app_or in H as [H|H].
    - apply filter_In in H as [H _]. exists ms. cbn; auto.
    - destruct (IH H) as (l & ? & ?). exists l. cbn; auto.
  Qed.

  (** Reduce of blocks that travel singly, with k ports. *)
  Theorem into_one_rounds rounds :
    root < n -> from_ranks n rounds -> single_block rounds ->
    send_ports k rounds -> receive_ports k rounds ->
    (forall r b, r < n -> b < blocks -> in_rounds own_contributions rounds root (r, b) = true) ->
    blocks * (n - 1) <= useful_messages n k (length rounds).
  Proof.
    intros Hroot Hn Hs Hp Hq H. etransitivity; [|apply useful_length; eassumption].
    replace (blocks * (n - 1)) with (length (list_prod (others n root) (seq 0 blocks)))
      by (rewrite prod_length, others_length, seq_length by assumption; lia).
    apply (distinct_images (fun m => (sender m, block_carried m))).
    - apply NoDup_pairs; [apply NoDup_others|apply seq_NoDup].
    - intros [r b] Hx. apply in_prod_iff in Hx as [Hr Hb].
      apply in_others in Hr as [Hr Hne]. pose proof Hb as Hb'. apply in_seq in Hb'.
      destruct (must_be_useful r (r, b) rounds Hne own_contributions) as (m & Hm & Es & Hc).
      + intros q Hq'. left. apply Nat.eqb_eq, Hq'.
      + apply H; lia.
      + apply in_map_iff. exists m. split; [|assumption]. rewrite Es. f_equal.
        destruct (useful_inside rounds m Hm) as (ms & Hms & Hin).
        unfold block_carried. destruct (find _ _) as [b'|] eqn:F.
        * apply find_some in F as [_ F]. apply existsb_exists in F as (r' & _ & F).
          apply (Hs ms Hms m Hin _ _ F Hc).
        * pose proof (find_none _ _ F b Hb) as G. cbn in G.
          apply not_true_iff_false in G. exfalso. apply G, existsb_exists.
          exists r. split; [apply in_seq; lia|assumption].
  Qed.
End IntoOne.

(** ** Solved for the number of rounds *)

Lemma sum_powers k e : sum (fun t => k * (k + 1) ^ t) e + 1 = (k + 1) ^ e.
Proof. induction e as [|e IH]; [reflexivity|]. rewrite sum_S. cbn [Nat.pow]. nia. Qed.

Lemma sum_plus f a b : sum f (a + b) = sum f a + sum (fun t => f (a + t)) b.
Proof.
  induction b as [|b IH].
  - rewrite Nat.add_0_r. unfold sum at 3. cbn. lia.
  - rewrite Nat.add_succ_r, !sum_S, IH. lia.
Qed.

(** Let e be the least exponent with (k+1)^e >= n-1.  Then T rounds suffice for
    blocks * (n-1) useful messages only if
       T >= e   and   blocks <= floor (((k+1)^e - 1) / (n-1)) + k (T - e),
    which is T >= e + ceil ((blocks - floor ...) / k). *)
Theorem stream_rounds n k blocks e T :
  2 <= n -> 1 <= blocks -> (forall d, d < e -> (k + 1) ^ d < n - 1) ->
  blocks * (n - 1) <= useful_messages n k T ->
  e <= T /\ blocks <= ((k + 1) ^ e - 1) / (n - 1) + k * (T - e).
Proof.
  intros Hn Hb He H.
  assert (Up : forall s, useful_messages n k s + 1 <= (k + 1) ^ s).
  { intros s. rewrite <- (sum_powers k s). apply Nat.add_le_mono_r, sum_le. lia. }
  assert (T0 : e <= T).
  { apply Nat.nlt_ge. intros C. specialize (He T C). specialize (Up T). nia. }
  split; [assumption|].
  assert (E : useful_messages n k T <= ((k + 1) ^ e - 1) + (T - e) * (k * (n - 1))).
  { replace T with (e + (T - e)) at 1 by lia. unfold useful_messages. rewrite sum_plus.
    apply Nat.add_le_mono.
    - specialize (Up e). unfold useful_messages in Up. lia.
    - rewrite <- (sum_const (k * (n - 1)) (T - e)). apply sum_le. intros i _. apply Nat.le_min_r. }
  assert (Q : blocks * (n - 1) <= ((k + 1) ^ e - 1) + (k * (T - e)) * (n - 1)) by nia.
  apply Nat.div_le_mono with (c := n - 1) in Q; [|lia].
  rewrite Nat.div_mul, Nat.div_add in Q by lia. exact Q.
Qed.

Print Assumptions out_of_one_rounds.
Print Assumptions into_one_rounds.
Print Assumptions stream_rounds.
