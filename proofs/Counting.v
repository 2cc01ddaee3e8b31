(** Counting in lists: the few facts that the volume and round bounds need. *)

From Coq Require Import List Arith Lia Bool.
Import ListNotations.

(** How many elements of [l] pass the test [p]. *)
Definition count {A} (p : A -> bool) (l : list A) : nat := length (filter p l).

Section Count.
  Context {A : Type}.
  Implicit Types (p q : A -> bool) (l : list A).

  Lemma count_nil p : count p [] = 0.
  Proof. reflexivity. Qed.

  Lemma count_cons p a l : count p (a :: l) = (if p a then 1 else 0) + count p l.
  Proof. unfold count; cbn; destruct (p a); reflexivity. Qed.

  Lemma count_app p l l' : count p (l ++ l') = count p l + count p l'.
  Proof. unfold count; rewrite filter_app, app_length; reflexivity. Qed.

  Lemma count_le_length p l : count p l <= length l.
  Proof. induction l as [|a l IH]; rewrite ?count_cons; cbn; [auto|destruct (p a); lia]. Qed.

  Lemma count_imp p q l :
    (forall a, In a l -> p a = true -> q a = true) -> count p l <= count q l.
  Proof.
    induction l as [|a l IH]; intros H; [auto|].
    rewrite !count_cons. specialize (IH (fun b Hb => H b (or_intror Hb))).
    specialize (H a (or_introl eq_refl)).
    destruct (p a); [rewrite H by reflexivity|]; destruct (q a); lia.
  Qed.

  Lemma count_ext p q l :
    (forall a, In a l -> p a = q a) -> count p l = count q l.
  Proof. intros H; unfold count; rewrite (filter_ext_in _ _ _ H); reflexivity. Qed.

  Lemma count_none p l : (forall a, In a l -> p a = false) -> count p l = 0.
  Proof.
    intros H; rewrite (count_ext p (fun _ => false)) by exact H.
    induction l; rewrite ?count_cons; auto using in_cons.
  Qed.

  Lemma count_all p l : (forall a, In a l -> p a = true) -> count p l = length l.
  Proof.
    intros H; rewrite (count_ext p (fun _ => true)) by exact H.
    induction l; rewrite ?count_cons; cbn; auto using in_cons.
  Qed.

  Lemma count_negb p l : count p l + count (fun a => negb (p a)) l = length l.
  Proof. induction l as [|a l IH]; rewrite ?count_cons; cbn; [auto|destruct (p a); cbn; lia]. Qed.

  Lemma count_filter_le p q l : count p (filter q l) <= count p l.
  Proof.
    induction l as [|a l IH]; [auto|]. cbn [filter].
    destruct (q a); rewrite !count_cons; lia.
  Qed.

  Lemma count_concat p (ls : list (list A)) n :
    (forall l, In l ls -> count p l = n) -> count p (concat ls) = length ls * n.
  Proof.
    induction ls as [|l ls IH]; intros H; [reflexivity|].
    cbn [concat length]. rewrite count_app, (H l) by (left; reflexivity).
    rewrite IH by (intros; apply H; right; assumption). lia.
  Qed.

  Lemma count_concat_le p (ls : list (list A)) b :
    (forall l, In l ls -> count p l <= b) -> count p (concat ls) <= length ls * b.
  Proof.
    induction ls as [|l ls IH]; intros H; [apply Nat.le_0_l|].
    cbn [concat length]. rewrite count_app.
    specialize (IH (fun l' Hl => H l' (or_intror Hl))).
    specialize (H l (or_introl eq_refl)). lia.
  Qed.

  Lemma count_unique p l :
    NoDup l -> (forall a b, In a l -> In b l -> p a = true -> p b = true -> a = b) ->
    count p l <= 1.
  Proof.
    intros nd H. unfold count. destruct (filter p l) as [|a rest] eqn:E; [apply Nat.le_0_l|].
    rewrite <- E. apply (NoDup_incl_length (l' := [a])); [apply NoDup_filter, nd|].
    intros b Hb. left.
    assert (Ha : In a (filter p l)) by (rewrite E; left; reflexivity).
    apply filter_In in Ha, Hb. apply H; tauto.
  Qed.
End Count.

(** Distinct things that all occur among [map f l] are no more than [l]. *)
Lemma distinct_images {A B} (f : A -> B) (l : list A) (xs : list B) :
  NoDup xs -> (forall x, In x xs -> In x (map f l)) -> length xs <= length l.
Proof.
  intros nd H. rewrite <- (map_length f l). apply NoDup_incl_length; auto.
Qed.

(** Double counting: if every element of [l] has exactly one label in [0 .. n-1],
    the counts per label add up to the length. *)
Definition sum (f : nat -> nat) (n : nat) : nat := list_sum (map f (seq 0 n)).

Lemma sum_S f n : sum f (S n) = sum f n + f n.
Proof. unfold sum; rewrite seq_S, map_app, list_sum_app; cbn; lia. Qed.

Lemma sum_ext f g n : (forall i, i < n -> f i = g i) -> sum f n = sum g n.
Proof.
  induction n; intros H; [reflexivity|].
  rewrite !sum_S, IHn, (H n); auto.
Qed.

Lemma sum_le f g n : (forall i, i < n -> f i <= g i) -> sum f n <= sum g n.
Proof.
  induction n; intros H; [auto|].
  rewrite !sum_S. specialize (IHn (fun i Hi => H i (Nat.lt_lt_succ_r _ _ Hi))).
  specialize (H n (Nat.lt_succ_diag_r n)). lia.
Qed.

Lemma sum_const c n : sum (fun _ => c) n = n * c.
Proof. induction n; [reflexivity|]; rewrite sum_S, IHn; lia. Qed.

Lemma sum_add f g n : sum (fun i => f i + g i) n = sum f n + sum g n.
Proof. induction n; [reflexivity|]; rewrite !sum_S, IHn; lia. Qed.

Lemma sum_indicator x n : sum (fun i => if x =? i then 1 else 0) n = if x <? n then 1 else 0.
Proof.
  induction n; [reflexivity|]. rewrite sum_S, IHn.
  destruct (Nat.eqb_spec x n), (Nat.ltb_spec x n), (Nat.ltb_spec x (S n)); lia.
Qed.

Lemma sum_counts_le {A} (p : A -> bool) (label : A -> nat) (l : list A) n :
  sum (fun i => count (fun a => p a && (label a =? i)) l) n <= count p l.
Proof.
  induction l as [|a l IH].
  - rewrite (sum_ext _ (fun _ => 0)) by reflexivity. rewrite sum_const; cbn; lia.
  - rewrite (sum_ext _ (fun i => (if p a && (label a =? i) then 1 else 0)
                                 + count (fun a => p a && (label a =? i)) l))
      by (intros; rewrite count_cons; reflexivity).
    rewrite sum_add, count_cons. destruct (p a); cbn.
    + rewrite sum_indicator. destruct (label a <? n); lia.
    + rewrite sum_const; lia.
Qed.

Lemma sum_counts {A} (p : A -> bool) (label : A -> nat) (l : list A) n :
  (forall a, In a l -> label a < n) ->
  sum (fun i => count (fun a => p a && (label a =? i)) l) n = count p l.
Proof.
  induction l as [|a l IH]; intros H.
  - rewrite (sum_ext _ (fun _ => 0)) by reflexivity. rewrite sum_const; cbn; lia.
  - rewrite (sum_ext _ (fun i => (if p a && (label a =? i) then 1 else 0)
                                 + count (fun a => p a && (label a =? i)) l))
      by (intros; rewrite count_cons; reflexivity).
    rewrite sum_add, count_cons, IH by (intros; apply H; right; assumption).
    specialize (H a (or_introl eq_refl)). destruct (p a); cbn.
    + rewrite sum_indicator. destruct (Nat.ltb_spec (label a) n); lia.
    + rewrite sum_const; lia.
Qed.

(** Among [n >= 1] numbers one is at least the average. *)
Lemma some_at_least_average f n :
  1 <= n -> exists i, i < n /\ sum f n <= n * f i.
Proof.
  intros Hn.
  assert (E : exists i, i < n /\ forall j, j < n -> f j <= f i).
  { induction n as [|n IH]; [lia|]. destruct (Nat.eq_dec n 0) as [->|].
    - exists 0; split; [lia|]. intros j Hj; replace j with 0 by lia; auto.
    - destruct IH as (i & Hi & Hmax); [lia|].
      destruct (Nat.le_ge_cases (f i) (f n)).
      + exists n; split; [lia|]. intros j Hj. destruct (Nat.eq_dec j n) as [->|]; [auto|].
        specialize (Hmax j ltac:(lia)); lia.
      + exists i; split; [lia|]. intros j Hj. destruct (Nat.eq_dec j n) as [->|]; [auto|].
        apply Hmax; lia. }
  destruct E as (i & Hi & Hmax). exists i; split; [assumption|].
  rewrite <- sum_const. apply sum_le; assumption.
Qed.

(** Pigeonhole: if every label of [l] is in [H] and each label in [H] occurs at
    most [k] times, then [l] has at most [k * length H] elements. *)
Lemma at_most_k_each {A} (label : A -> nat) k (hs : list nat) : forall l : list A,
  (forall a, In a l -> In (label a) hs) ->
  (forall h, In h hs -> count (fun a => label a =? h) l <= k) ->
  length l <= k * length hs.
Proof.
  induction hs as [|h hs IH]; intros l Hin Hk.
  - destruct l as [|a l]; [cbn; lia|]. destruct (Hin a (or_introl eq_refl)).
  - set (rest := filter (fun a => negb (label a =? h)) l).
    assert (El : length l = count (fun a => label a =? h) l + length rest).
    { unfold rest; clear; induction l as [|a l IH]; [reflexivity|].
      rewrite count_cons; cbn; destruct (label a =? h); cbn; lia. }
    assert (length rest <= k * length hs).
    { apply IH.
      - intros a Ha. apply filter_In in Ha as [Ha Hne].
        destruct (Nat.eqb_spec (label a) h) as [|ne]; [discriminate|].
        destruct (Hin a Ha); [congruence|assumption].
      - intros h' Hh'. specialize (Hk h' (or_intror Hh')).
        etransitivity; [|exact Hk]. unfold rest; clear.
        induction l as [|a l IH]; [auto|]. cbn [filter].
        destruct (label a =? h); cbn [negb]; rewrite !count_cons; destruct (label a =? h'); lia. }
    specialize (Hk h (or_introl eq_refl)). cbn [length]. lia.
Qed.

(** ** Duplicate-free lists *)

Lemma NoDup_map_on {A B} (f : A -> B) (l : list A) :
  (forall x y, In x l -> In y l -> f x = f y -> x = y) -> NoDup l -> NoDup (map f l).
Proof.
  induction l as [|a l IH]; intros inj nd; [constructor|].
  inversion_clear nd as [|? ? Hna Hnd]. cbn. constructor.
  - intros Hin. apply in_map_iff in Hin as (b & Hf & Hb).
    apply Hna. rewrite <- (inj b a); cbn; auto.
  - apply IH; [|assumption]. intros x y Hx Hy. apply inj; cbn; auto.
Qed.

Lemma NoDup_filter_seq (p : nat -> bool) n : NoDup (filter p (seq 0 n)).
Proof. apply NoDup_filter, seq_NoDup. Qed.

Lemma NoDup_both {A} (l l' : list A) :
  NoDup l -> NoDup l' -> (forall a, In a l -> In a l' -> False) -> NoDup (l ++ l').
Proof.
  induction l as [|a l IH]; intros nd nd' H; [assumption|].
  inversion_clear nd. cbn. constructor.
  - rewrite in_app_iff. intros [?|?]; [easy|]. apply (H a); cbn; auto.
  - apply IH; auto. intros b Hb. apply H; cbn; auto.
Qed.

Lemma NoDup_pairs {A B} (xs : list A) (ys : list B) :
  NoDup xs -> NoDup ys -> NoDup (list_prod xs ys).
Proof.
  intros Hx Hy. induction Hx as [|x xs Hn Hx IH]; cbn; [constructor|].
  apply NoDup_both; [|assumption|].
  - apply NoDup_map_on; [|assumption]. intros ? ? _ _ [=]; assumption.
  - intros [a b] Ha Hb. apply in_map_iff in Ha as (? & [=] & _).
    apply in_prod_iff in Hb as [Hb _]. congruence.
Qed.

(** ** The numbers below n, but one *)

Lemma count_one r n : r < n -> count (fun q => q =? r) (seq 0 n) = 1.
Proof.
  intros H. induction n as [|n IH]; [lia|].
  rewrite seq_S, count_app, count_cons, count_nil. cbn.
  destruct (Nat.eqb_spec n r) as [->|].
  - rewrite count_none; [reflexivity|]. intros a Ha. apply in_seq in Ha.
    destruct (Nat.eqb_spec a r); [lia|reflexivity].
  - rewrite IH; lia.
Qed.

Lemma count_map {A B} (p : B -> bool) (f : A -> B) l :
  count p (map f l) = count (fun a => p (f a)) l.
Proof. induction l; [reflexivity|]; cbn [map]; rewrite !count_cons, IHl; reflexivity. Qed.

Definition others (n x : nat) : list nat := filter (fun r => negb (r =? x)) (seq 0 n).

Lemma in_others n x r : In r (others n x) <-> r < n /\ r <> x.
Proof.
  unfold others. rewrite filter_In, in_seq, negb_true_iff, Nat.eqb_neq. lia.
Qed.

Lemma NoDup_others n x : NoDup (others n x).
Proof. apply NoDup_filter_seq. Qed.

Lemma others_length n x : x < n -> length (others n x) = n - 1.
Proof.
  intros H. pose proof (count_negb (fun r => r =? x) (seq 0 n)) as L.
  rewrite count_one, seq_length in L by assumption. unfold others, count in *. lia.
Qed.
